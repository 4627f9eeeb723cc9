package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/sim"
)

// GangReport is the explained gang, or the gang of the explained pod.
type GangReport struct {
	status.Gang
	// Fit is how many of the missing members would each find a node now, if they were not a gang. Nil for the gang of an
	// explained pod.
	Fit *int `json:"fit,omitempty"`
	// Gated members have scheduling gates, and do not count.
	Gated int `json:"gated,omitempty"`
	// Missing is how many more members must be bound together for the gang to start.
	Missing int `json:"missing"`
	// Why says in the scheduler's words why the gang does not start on a copy of the cluster.
	Why string `json:"why,omitempty"`
	// Stuck is a member that finds no node when the others have one.
	Stuck string `json:"stuck,omitempty"`

	group *schedv1alpha1.PodGroup
}

func countGang(c *census.Census, g *census.Gang) *GangReport {
	return &GangReport{Gang: status.GangOf(c, g), Missing: g.Missing(), Gated: len(g.Gated), group: g.Group}
}

// Open copies the cluster of the census, with options that it may change.
type Open func(change func(*sim.Options)) (*sim.Sim, error)

// Gang explains a gang by its key, "namespace/name"; nil if there is neither a PodGroup nor a pod of it. It lets the
// scheduler place the gang on copies of the cluster.
func Gang(ctx context.Context, c *census.Census, open Open, key string, events []eventsv1.Event) (*Report, error) {
	g := c.Gang(key)
	if g == nil {
		return nil, nil
	}
	r := &Report{Gang: countGang(c, g), Said: said(nil, events), Gaps: c.Snapshot.Notes()}
	e := &gangExamination{census: c, open: open, report: r, gang: g}
	if step := e.formal(); step != "" {
		r.Next = append(r.Next, step)
		return r, nil
	}
	if r.Gang.Missing == 0 {
		return r, nil
	}
	return r, e.run(ctx)
}

// gangExamination has the scheduler try a gang.
type gangExamination struct {
	census *census.Census
	open   Open
	report *Report
	gang   *census.Gang
}

// formal says what a gang lacks besides nodes.
func (e *gangExamination) formal() string {
	g := e.report.Gang
	name := "PodGroup " + g.Namespace + "/" + g.Name
	exist := g.Members + g.Succeeded
	switch {
	case g.group == nil && !e.census.Snapshot.Has(census.PodGroups):
		return "the PodGroup could not be read"
	case g.group == nil:
		return name + " must exist"
	case g.MinMember < 1:
		return name + " needs a spec.minMember of at least 1"
	case g.Missing == 0:
		return ""
	case exist < g.MinMember:
		return fmt.Sprintf("%s needs %d members and has %d: %d more pods must be made", name, g.MinMember, exist, g.MinMember-exist)
	case exist-g.Gated < g.MinMember:
		return fmt.Sprintf("%s needs %d members, and %d have scheduling gates, which must be removed", name, g.MinMember, g.Gated)
	}
	return ""
}

// members returns the pods to schedule: the gang's members, as they are or as pods without a gang, and other pods with a
// nomination.
func (e *gangExamination) members(as func(*corev1.Pod) *corev1.Pod) func(*sim.Options) {
	return func(o *sim.Options) {
		o.Pods = func(pod *corev1.Pod) *corev1.Pod {
			switch {
			case census.GangOf(pod) == e.gang.Key:
				return as(pod)
			case pod.Status.NominatedNodeName != "":
				return pod
			}
			return nil
		}
	}
}

func asTheyAre(pod *corev1.Pod) *corev1.Pod { return pod }

func (e *gangExamination) run(ctx context.Context) error {
	r, g := e.report, e.report.Gang
	name := "PodGroup " + g.Namespace + "/" + g.Name
	s, err := e.open(e.members(asTheyAre))
	if err != nil {
		return err
	}
	defer s.Close()
	missing, err := e.place(ctx, s)
	if err != nil {
		return err
	}
	if missing == 0 {
		g.Fit = &g.Missing
		r.Next = append(r.Next, fmt.Sprintf("nothing that is seen here: %s needs %d more members at once, and they fit now. The scheduler tries again after its backoff, or when room appears", name, g.Missing))
		return nil
	}
	g.Why = e.words(s)
	r.Said = append(saidOfMembers(e.gang.Waiting), r.Said...)
	if err := e.separately(ctx); err != nil {
		return err
	}
	return e.try(ctx)
}

// place runs a copy, and returns how many members are then missing.
func (e *gangExamination) place(ctx context.Context, s *sim.Sim) (missing int, err error) {
	if err := s.Run(ctx); err != nil {
		return 0, err
	}
	bound := e.gang.Done
	for _, p := range e.gang.Members {
		if now, ok := sim.Get[*corev1.Pod](s, p.Namespace, p.Name); ok && now.Spec.NodeName != "" {
			bound++
		}
	}
	return max(0, e.gang.MinMember()-bound), nil
}

// words returns what the scheduler said about the gang on the copy, in an event or in a condition.
func (e *gangExamination) words(s *sim.Sim) string {
	namespace, name, _ := strings.Cut(e.gang.Key, "/")
	events := s.Events("PodGroup", namespace, name)
	for _, event := range slices.Backward(events) {
		if event.Type == corev1.EventTypeWarning {
			return event.Note
		}
	}
	for _, p := range e.gang.Waiting {
		if why := s.Why(p.Pod); why != "" {
			return why
		}
		if now, ok := sim.Get[*corev1.Pod](s, p.Namespace, p.Name); ok {
			for i := range now.Status.Conditions {
				if c := &now.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
					return c.Message
				}
			}
		}
	}
	return ""
}

// separately has the members placed as pods without a gang. It returns how many find a node, and what keeps the first
// that finds none.
func (e *gangExamination) separately(ctx context.Context) error {
	r, g := e.report, e.report.Gang
	s, err := e.open(e.members(alone))
	if err != nil {
		return err
	}
	defer s.Close()
	missing, err := e.place(ctx, s)
	if err != nil {
		return err
	}
	fit := g.Missing - missing
	g.Fit = &fit
	for _, p := range e.gang.Waiting {
		now, ok := sim.Get[*corev1.Pod](s, p.Namespace, p.Name)
		if !ok || now.Spec.NodeName != "" {
			continue
		}
		g.Stuck = p.Name
		x := &examination{census: e.census, sim: s, report: r, pod: now.DeepCopy()}
		r.Next = append(r.Next, fmt.Sprintf("PodGroup %s/%s needs %d more members at once, and %d of them fit now; %s is the first that does not", g.Namespace, g.Name, g.Missing, fit, g.Stuck))
		return x.zones(ctx)
	}
	r.Next = append(r.Next, fmt.Sprintf("PodGroup %s/%s needs %d more members at once: one by one they fit, together they do not", g.Namespace, g.Name, g.Missing))
	return nil
}

// mostZones is the largest number of zones in which more nodes are tried.
const mostZones = 5

// try changes copies of the cluster until the gang starts.
func (e *gangExamination) try(ctx context.Context) error {
	g := e.report.Gang
	short := max(1, g.Missing-*g.Fit)
	tried := map[string]bool{}
	for _, n := range e.census.Nodes {
		if tried[n.Zone] || len(tried) == mostZones || n.Spec.Unschedulable || !census.Ready(n.Node) {
			continue
		}
		tried[n.Zone] = true
		err := e.tryOne(ctx, fmt.Sprintf("in zone %s: %s like %s", zoneName(n.Zone), show.Plural(short, "more node"), n.Name), func(s *sim.Sim) error {
			_, err := s.AddNodes(short, n.Name)
			return err
		})
		if err != nil {
			return err
		}
	}
	var held []string
	for _, z := range e.report.Zone {
		for _, h := range z.Holds {
			if !h.Own && !slices.Contains(held, h.Reservation) {
				held = append(held, h.Reservation)
			}
		}
	}
	if len(held) > 0 {
		return e.tryOne(ctx, "without the slots that are held by ZoneReservation "+strings.Join(held, ", "), func(s *sim.Sim) error {
			for _, name := range held {
				if r, ok := sim.Get[*v1alpha1.ZoneReservation](s, "", name); ok {
					s.Remove(r)
				}
			}
			return nil
		})
	}
	return nil
}

func (e *gangExamination) tryOne(ctx context.Context, words string, change func(*sim.Sim) error) error {
	s, err := e.open(e.members(asTheyAre))
	if err != nil {
		return err
	}
	defer s.Close()
	if err := change(s); err != nil {
		return err
	}
	missing, err := e.place(ctx, s)
	if err == nil && missing == 0 {
		e.report.Next = append(e.report.Next, words)
	}
	return err
}

// saidOfMembers collects the conditions of members, which are of the scheduler's last attempt for each, the most
// frequent first.
func saidOfMembers(members []*census.Pod) []Said {
	count := map[string]int{}
	var out []Said
	for _, p := range members {
		for _, s := range said(p.Pod, nil) {
			if count[s.Words]++; count[s.Words] == 1 {
				out = append(out, s)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Said) int { return cmp.Compare(count[b.Words], count[a.Words]) })
	return out[:min(len(out), 2)]
}
