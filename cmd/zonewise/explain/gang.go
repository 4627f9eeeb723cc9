package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/sim"
)

// GangReport is the explained gang, or the gang of the explained pod.
type GangReport struct {
	status.Gang
	// Fit is how many of the missing members would find a node now, as a gang or, if it does not start, as pods of
	// their own. Nil for the gang of an explained pod, and where that says nothing about the gang.
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
	return fmt.Sprintf("PodGroup %s needs %s at once", g.Title(), show.Plural(g.Missing, "more member"))
}

// Gang explains a gang by its key, see census.Key; nil if there is neither a PodGroup nor a pod of it. It lets the
// scheduler place the gang on copies of the cluster.
func (x *Explainer) Gang(ctx context.Context, key string, events []eventsv1.Event) (*Report, error) {
	c := x.Census
	g := c.Gang(key)
	if g == nil {
		return nil, nil
	}
	r := &Report{Gang: countGang(c, g), Said: schedulerMessages(nil, events), Gaps: c.Snapshot.Notes()}
	e := &gangExamination{Explainer: x, report: r, gang: g}
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
	*Explainer

	report *Report
	gang   *census.Gang
}

// whyNotTried says what a gang lacks besides nodes.
func (e *gangExamination) whyNotTried() string {
	g := e.report.Gang
	name := "PodGroup " + e.gang.Key
	exist := g.Members + g.Succeeded
	switch {
	case !e.gang.Exists() && !e.Census.Snapshot.Has(e.gang.Resource()):
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

// placeMembers has the scheduler place the gang on a copy with more nodes, and returns how many members are then
// missing. The copy has the gang's members, as they are or as pods without a gang, and other pods with a nomination.
// The caller closes it.
func (e *gangExamination) placeMembers(
	ctx context.Context, as func(*corev1.Pod) *corev1.Pod, bought map[string]int,
) (s *sim.Sim, missing int, err error) {
	s, err = e.copyWith(ctx, func(pod *corev1.Pod) *corev1.Pod {
		if e.Census.GangOf(pod) == e.gang.Key {
			return as(pod)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	for _, like := range slices.Sorted(maps.Keys(bought)) {
		if err == nil {
			_, err = s.AddNodes(bought[like], like)
		}
	}
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

func (e *gangExamination) scheduleWhole(ctx context.Context) error {
	r, g := e.report, e.report.Gang
	s, missing, err := e.placeMembers(ctx, asTheyAre, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if missing == 0 {
		g.Fit = &g.Missing
		instead := ""
		if victims := s.Evicted(); len(victims) > 0 {
			instead = ": they preempt " + namesText(victims)
		}
		r.Next = append(r.Next, fmt.Sprintf("no change is needed: %s, and they fit now%s. The scheduler tries again after its backoff, or when room appears", g.neededText(), instead))
		return nil
	}
	g.Why = e.reasonText(s)
	r.Said = distinct(append(saidOfMembers(e.gang.Waiting), r.Said...))
	if packed, _ := podgroup.TopologyOf(e.gang.Object()); packed.Required {
		// Where its members would go one by one says nothing about a gang that has to be in one domain.
		r.Next = append(r.Next, fmt.Sprintf("%s on nodes with the same %s", g.neededText(), packed.Key))
		err = e.evaluateMember(ctx, s, e.gang.Waiting[0].Pod)
	} else {
		err = e.placeSeparately(ctx)
	}
	if err != nil {
		return err
	}
	return e.buyForGang(ctx, s)
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

// evaluateMember says what each zone offers a member of its own.
func (e *gangExamination) evaluateMember(ctx context.Context, s *sim.Sim, member *corev1.Pod) error {
	answer, err := s.Evaluate(ctx, withoutGang(member))
	if err == nil {
		e.report.Zone = zonesOf(e.Census, s, member, answer)
	}
	return err
}

// placeSeparately has the members placed as pods without a gang, and says what keeps the first that finds no node.
func (e *gangExamination) placeSeparately(ctx context.Context) error {
	r, g := e.report, e.report.Gang
	s, missing, err := e.placeMembers(ctx, withoutGang, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if missing == 0 {
		r.Next = append(r.Next, g.neededText()+": one by one they would find nodes, together they do not")
		return nil
	}
	fit := g.Missing - missing
	g.Fit = &fit
	for _, p := range e.gang.Waiting {
		if now, ok := sim.Get[*corev1.Pod](s, p.Namespace, p.Name); ok && now.Spec.NodeName == "" {
			g.Stuck = p.Name
			r.Next = append(r.Next, fmt.Sprintf("%s, and %d of them would find a node; %s is the first that would not", g.neededText(), fit, g.Stuck))
			return e.evaluateMember(ctx, s, now)
		}
	}
	return nil
}

// buyForGang says with which further nodes the gang would start.
func (e *gangExamination) buyForGang(ctx context.Context, s *sim.Sim) error {
	lacking := e.report.Gang.Missing
	if e.report.Gang.Fit != nil {
		lacking -= *e.report.Gang.Fit
	}
	answer, err := s.Evaluate(ctx, withoutGang(e.gang.Waiting[0].Pod))
	if err != nil {
		return err
	}
	steps, err := e.nodesThatHelp(answer, lacking, func(bought map[string]int) (bool, error) {
		s, missing, err := e.placeMembers(ctx, asTheyAre, bought)
		if err == nil {
			s.Close()
		}
		return missing == 0, err
	})
	e.report.Next = append(e.report.Next, steps...)
	return err
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
