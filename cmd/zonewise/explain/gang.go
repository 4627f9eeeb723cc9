package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/sim"
)

// GangReport is the explained gang, or the gang of the explained pod.
type GangReport struct {
	status.Gang
	// Fit is how many of the missing members would each find a node now, if they were not a gang. Nil for the gang of
	// an explained pod.
	Fit *int `json:"fit,omitempty"`
	// Gated members have scheduling gates, and do not count.
	Gated int `json:"gated,omitempty"`
	// Missing is how many more members must be bound together for the gang to start.
	Missing int `json:"missing"`
	// Why says in the scheduler's words why the gang does not start on a copy of the cluster.
	Why string `json:"why,omitempty"`
	// Stuck is a member that finds no node when the others have one.
	Stuck string `json:"stuck,omitempty"`
}

func countGang(c *census.Census, g *census.Gang) *GangReport {
	return &GangReport{Gang: status.GangOf(c, g), Missing: g.Missing(), Gated: len(g.Gated)}
}

func (g *GangReport) neededText() string {
	return fmt.Sprintf("PodGroup %s needs %d more members at once", g.Title(), g.Missing)
}

// Gang explains a gang by its key, see census.Key; nil if there is neither a PodGroup nor a pod of it. It lets the
// scheduler place the gang on copies of the cluster, see sim.Of for the options.
func Gang(
	ctx context.Context, c *census.Census, options sim.Options, key string, events []eventsv1.Event,
) (*Report, error) {
	g := c.Gang(key)
	if g == nil {
		return nil, nil
	}
	r := &Report{Gang: countGang(c, g), Said: schedulerMessages(nil, events), Gaps: c.Snapshot.Notes()}
	e := &gangExamination{census: c, options: options, report: r, gang: g}
	if step := e.whyNotTried(); step != "" {
		r.Next = append(r.Next, step)
		return r, nil
	}
	if r.Gang.Missing == 0 {
		return r, nil
	}
	return r, e.scheduleWhole(ctx)
}

// gangExamination has the scheduler try a gang.
type gangExamination struct {
	census  *census.Census
	options sim.Options
	report  *Report
	gang    *census.Gang
}

// whyNotTried says what a gang lacks besides nodes.
func (e *gangExamination) whyNotTried() string {
	g := e.report.Gang
	name := "PodGroup " + e.gang.Key
	exist := g.Members + g.Succeeded
	switch {
	case !e.gang.Exists() && !e.census.Snapshot.Has(e.gang.Resource()):
		return "the PodGroup could not be read"
	case !e.gang.Exists():
		return name + " must exist"
	case g.MinMember < 1:
		return name + " needs a " + e.gang.MinMemberField() + " of at least 1"
	case g.Missing == 0:
		return ""
	case exist < g.MinMember:
		return fmt.Sprintf("%s needs %d members and has %d: %d more pods must be created", name, g.MinMember, exist, g.MinMember-exist)
	case exist-g.Gated < g.MinMember:
		return fmt.Sprintf("%s needs %d members, and %d have scheduling gates, which must be removed", name, g.MinMember, g.Gated)
	}
	return ""
}

func asTheyAre(pod *corev1.Pod) *corev1.Pod { return pod }

// placeMembers has the scheduler place the gang on a changed copy, and returns how many members are then missing. The
// copy has the gang's members, as they are or as pods without a gang, and other pods with a nomination. The caller
// closes it.
func (e *gangExamination) placeMembers(
	ctx context.Context, as func(*corev1.Pod) *corev1.Pod, change func(*sim.Sim) error,
) (s *sim.Sim, missing int, err error) {
	options := e.options
	options.Pods = func(pod *corev1.Pod) *corev1.Pod {
		switch {
		case e.census.GangOf(pod) == e.gang.Key:
			return as(pod)
		case pod.Status.NominatedNodeName != "":
			return pod
		}
		return nil
	}
	s, err = sim.Of(ctx, e.census.Snapshot, options)
	if err != nil {
		return nil, 0, err
	}
	err = change(s)
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		s.Close()
		return nil, 0, err
	}
	bound := e.gang.Done
	for _, p := range e.gang.Members {
		if now, ok := sim.Get[*corev1.Pod](s, p.Namespace, p.Name); ok && now.Spec.NodeName != "" {
			bound++
		}
	}
	return s, max(0, e.gang.MinMember()-bound), nil
}

func unchanged(*sim.Sim) error { return nil }

func (e *gangExamination) scheduleWhole(ctx context.Context) error {
	r, g := e.report, e.report.Gang
	s, missing, err := e.placeMembers(ctx, asTheyAre, unchanged)
	if err != nil {
		return err
	}
	defer s.Close()
	if missing == 0 {
		g.Fit = &g.Missing
		r.Next = append(r.Next, fmt.Sprintf("no change is needed: %s, and they fit now. The scheduler tries again after its backoff, or when room appears", g.neededText()))
		return nil
	}
	g.Why = e.reasonText(s)
	r.Said = append(saidOfMembers(e.gang.Waiting), r.Said...)
	if err := e.placeSeparately(ctx); err != nil {
		return err
	}
	return e.tryChanges(ctx)
}

// reasonText returns what the scheduler said about a member on the copy, or about the gang.
func (e *gangExamination) reasonText(s *sim.Sim) string {
	for _, p := range e.gang.Waiting {
		if reason := s.Why(p.Pod); reason != "" {
			return reason
		}
		if now, ok := sim.Get[*corev1.Pod](s, p.Namespace, p.Name); ok && census.Refusal(now).Message != "" {
			return census.Refusal(now).Message
		}
	}
	kind := sim.GangKind
	if e.gang.Native {
		kind = sim.NativeGangKind
	}
	for _, event := range slices.Backward(s.Events(kind, e.report.Gang.Namespace, e.report.Gang.Name)) {
		if event.Type == corev1.EventTypeWarning {
			return event.Note
		}
	}
	return ""
}

// placeSeparately has the members placed as pods without a gang, and says what keeps the first that finds no node.
func (e *gangExamination) placeSeparately(ctx context.Context) error {
	r, g := e.report, e.report.Gang
	s, missing, err := e.placeMembers(ctx, withoutGang, unchanged)
	if err != nil {
		return err
	}
	defer s.Close()
	fit := g.Missing - missing
	g.Fit = &fit
	for _, p := range e.gang.Waiting {
		now, ok := sim.Get[*corev1.Pod](s, p.Namespace, p.Name)
		if !ok || now.Spec.NodeName != "" {
			continue
		}
		g.Stuck = p.Name
		r.Next = append(r.Next, fmt.Sprintf("%s, and %d of them fit now; %s is the first that does not", g.neededText(), fit, g.Stuck))
		x := &examination{census: e.census, sim: s, report: r, pod: now}
		return x.evaluateZones(ctx)
	}
	r.Next = append(r.Next, g.neededText()+": one by one they fit, together they do not")
	return nil
}

// mostZones is the largest number of zones in which more nodes are tried.
const mostZones = 5

// tryChanges changes copies of the cluster until the gang starts.
func (e *gangExamination) tryChanges(ctx context.Context) error {
	lacking := max(1, e.report.Gang.Missing-*e.report.Gang.Fit)
	models := e.census.NodePerZone()
	for _, n := range models[:min(len(models), mostZones)] {
		err := e.tryChange(ctx, fmt.Sprintf("in zone %s: %s like %s", status.ZoneText(n.Zone), show.Plural(lacking, "more node"), n.Name), func(s *sim.Sim) error {
			_, err := s.AddNodes(lacking, n.Name)
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
	if len(held) == 0 {
		return nil
	}
	return e.tryChange(ctx, "without the slots that are held by ZoneReservation "+strings.Join(held, ", "), func(s *sim.Sim) error {
		for _, name := range held {
			if r, ok := sim.Get[*v1alpha1.ZoneReservation](s, "", name); ok {
				s.Remove(r)
			}
		}
		return nil
	})
}

func (e *gangExamination) tryChange(ctx context.Context, text string, change func(*sim.Sim) error) error {
	s, missing, err := e.placeMembers(ctx, asTheyAre, change)
	if err != nil {
		return err
	}
	s.Close()
	if missing == 0 {
		e.report.Next = append(e.report.Next, text)
	}
	return nil
}

// saidOfMembers collects the conditions of members, which are of the scheduler's last attempt for each, the most
// frequent first.
func saidOfMembers(members []*census.Pod) []SchedulerMessage {
	count := map[string]int{}
	var out []SchedulerMessage
	for _, p := range members {
		for _, s := range schedulerMessages(p.Pod, nil) {
			if count[s.Words]++; count[s.Words] == 1 {
				out = append(out, s)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b SchedulerMessage) int { return cmp.Compare(count[b.Words], count[a.Words]) })
	return out[:min(len(out), 2)]
}
