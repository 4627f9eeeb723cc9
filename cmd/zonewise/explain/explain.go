package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/utils/ptr"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/cmd/zonewise/world"
)

// The verdicts.
const (
	Bound   = "Bound"
	Waiting = "Waiting"
	Gated   = "Gated"
	Ended   = "Ended"
)

// Report explains a pod or a gang.
type Report struct {
	Pod  *Pod         `json:"pod,omitempty"`
	Gang *GangReport  `json:"gang,omitempty"`
	Said []Said       `json:"schedulerSaid,omitempty"`
	Next []string     `json:"whatWouldLetItGo,omitempty"`
	Gaps []string     `json:"notes,omitempty"`
	Zone []ZoneAnswer `json:"zones,omitempty"`
}

// ZoneAnswer is what a zone is to the pod.
type ZoneAnswer = world.ZoneAnswer

// Pod is the pod that is explained.
type Pod struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Workload    string            `json:"workload"`
	Scheduler   string            `json:"schedulerName"`
	Priority    int32             `json:"priority"`
	Requests    map[string]string `json:"requests"`
	Verdict     string            `json:"verdict"`
	Node        string            `json:"node,omitempty"`
	Zone        string            `json:"zone,omitempty"`
	Waits       string            `json:"waits,omitempty"`
	Policies    []string          `json:"policies,omitempty"`
	Reservation string            `json:"reservation,omitempty"`
}

// GangReport is the gang that is explained, or that the pod belongs to.
type GangReport struct {
	status.Gang
	// Fit is how many of the members without a node would find one now, all placed together; of a gang that has no plan, how
	// many at most.
	Fit int `json:"fit"`
	// Gated members have scheduling gates, and do not count.
	Gated int `json:"gated,omitempty"`
	// Missing is how many more must, for the gang to start.
	Missing int `json:"missing"`
	// Why says in the scheduler's words why there is no plan.
	Why string `json:"why,omitempty"`
	// Stuck is the first member that finds none when the others have one.
	Stuck string `json:"stuck,omitempty"`

	group *schedv1alpha1.PodGroup
}

// Said is what the scheduler said: a condition of the pod, or an event.
type Said struct {
	Reason string    `json:"reason"`
	Words  string    `json:"message"`
	At     time.Time `json:"at,omitzero"`
	Count  int32     `json:"count,omitempty"`
}

// Explain explains a pod, which may be bound.
func Explain(w *world.World, p *world.Pod, events []eventsv1.Event) *Report {
	pod := p.Object
	r := &Report{Pod: describe(w, p), Said: said(pod, events)}
	r.gaps(w, pod)
	if key := p.Gang(); key != "" {
		r.Gang, _ = gangOf(w, w.Gang(key))
	}
	switch {
	case p.Node != nil || pod.Spec.NodeName != "":
		return r
	case len(pod.Spec.SchedulingGates) > 0:
		var gates []string
		for _, g := range pod.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		r.Pod.Verdict = Gated
		r.Next = append(r.Next, "its scheduling gates must be removed: "+strings.Join(gates, ", "))
	}
	r.Zone = w.Ask(pod)
	if r.Gang != nil && r.gangSteps(w) {
		return r
	}
	r.zoneSteps(pod)
	return r
}

// Gang explains a gang by its key, "namespace/name"; nil when there is neither a PodGroup nor a pod of it.
func Gang(w *world.World, key string, events []eventsv1.Event) *Report {
	g := w.Gang(key)
	if g == nil {
		return nil
	}
	r := &Report{Said: said(nil, events)}
	var placement *world.Placement
	r.Gang, placement = gangOf(w, g)
	if r.Gang.Missing == 0 || len(g.Waiting) == 0 {
		r.gangSteps(w)
		return r
	}
	r.gaps(w, g.Waiting[0].Object)
	r.Said = append(saidOfMembers(g.Waiting, r.Gang.Why), r.Said...)
	enough := r.gangSteps(w)
	if placement.Stuck == nil {
		return r
	}
	// What is in the way of the first member that fits nowhere, with the others placed.
	placed := w.PlacePartly(g, placement)
	r.Zone = w.Ask(placement.Stuck.Object)
	w.Undo(placed)
	if !enough {
		r.zoneSteps(placement.Stuck.Object)
	}
	return r
}

func describe(w *world.World, p *world.Pod) *Pod {
	pod := p.Object
	d := &Pod{
		Namespace: pod.Namespace, Name: pod.Name, Workload: w.Workload(pod), Scheduler: cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName),
		Priority: ptr.Deref(pod.Spec.Priority, 0), Verdict: Waiting, Requests: map[string]string{},
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if n := p.Requests.Amount(name); n > 0 {
			d.Requests[string(name)] = world.Amount(name, n)
		}
	}
	for name, n := range p.Requests.Scalar {
		d.Requests[string(name)] = world.Amount(name, n)
	}
	for _, policy := range w.PoliciesOf(pod) {
		d.Policies = append(d.Policies, policy.Compiled.Key())
	}
	if h := w.Owner(pod); h != nil {
		d.Reservation = h.Object.Name
	}
	if pod.Spec.NodeName != "" {
		d.Verdict, d.Node = Bound, pod.Spec.NodeName
		if p.Node != nil {
			d.Zone = p.Node.Zone
		}
		return d
	}
	if !pod.CreationTimestamp.IsZero() {
		d.Waits = w.Now.Sub(pod.CreationTimestamp.Time).Round(time.Second).String()
	}
	return d
}

// said collects the scheduler's own words, the last first.
func said(pod *corev1.Pod, events []eventsv1.Event) []Said {
	var out []Said
	for i := range events {
		e := &events[i]
		s := Said{Reason: e.Reason, Words: e.Note, At: e.EventTime.Time, Count: 1}
		if e.Series != nil {
			s.At, s.Count = e.Series.LastObservedTime.Time, e.Series.Count
		}
		if s.At.IsZero() {
			s.At, s.Count = e.DeprecatedLastTimestamp.Time, e.DeprecatedCount
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Said) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Words, b.Words))
	})
	out = out[:min(len(out), 5)]
	if pod == nil {
		return out
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != corev1.PodScheduled || c.Status == corev1.ConditionTrue || c.Message == "" {
			continue
		}
		if !slices.ContainsFunc(out, func(s Said) bool { return s.Words == c.Message }) {
			out = slices.Insert(out, 0, Said{Reason: c.Reason, Words: c.Message, At: c.LastTransitionTime.Time})
		}
	}
	return out
}

// saidOfMembers collects what conditions of members say: each is of the last attempt that the scheduler made for that
// member. Those that say what is true now come first, then those of most members.
func saidOfMembers(members []*world.Pod, why string) []Said {
	count := map[string]int32{}
	var out []Said
	for _, p := range members {
		for _, s := range said(p.Object, nil) {
			if count[s.Words]++; count[s.Words] == 1 {
				out = append(out, s)
			}
		}
	}
	current := func(s Said) int {
		if why != "" && strings.Contains(s.Words, why) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Said) int {
		return cmp.Or(cmp.Compare(current(a), current(b)), cmp.Compare(count[b.Words], count[a.Words]))
	})
	return out[:min(len(out), 2)]
}

// gaps says what the answer leaves out.
func (r *Report) gaps(w *world.World, pod *corev1.Pod) {
	for _, m := range w.Snapshot.Missing {
		r.Gaps = append(r.Gaps, m.Words())
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		r.Gaps = append(r.Gaps, "devices (resource claims) are not looked at")
	}
}

// gangOf counts a gang, and how many of its waiting members would fit now.
func gangOf(w *world.World, g *world.Gang) (*GangReport, *world.Placement) {
	out := &GangReport{Gang: status.GangOf(w, g), Missing: g.Missing(), Gated: len(g.Gated), group: g.Group}
	placement := w.PlaceGang(g)
	w.Undo(placement.Placed)
	out.Fit, out.Why = placement.Fit, placement.Why
	if placement.Stuck != nil {
		out.Stuck = placement.Stuck.Object.Name
	}
	return out, placement
}

// gangSteps says what the gang needs, and whether that is all there is to say.
func (r *Report) gangSteps(w *world.World) (enough bool) {
	g := r.Gang
	name := "PodGroup " + g.Namespace + "/" + g.Name
	exist := g.Members + g.Succeeded
	switch {
	case g.group == nil && !w.Snapshot.IsSet("podgroups.scheduling.x-k8s.io"):
		r.Next = append(r.Next, "the PodGroup could not be read")
		return true
	case g.group == nil:
		r.Next = append(r.Next, name+" must exist")
		return true
	case g.MinMember < 1:
		r.Next = append(r.Next, name+" needs a spec.minMember of at least 1")
		return true
	case g.Missing == 0:
		return false
	case exist < g.MinMember:
		r.Next = append(r.Next, fmt.Sprintf("%s needs %d members and has %d: %d more pods must be made", name, g.MinMember, exist, g.MinMember-exist))
		return true
	case exist-g.Gated < g.MinMember:
		r.Next = append(r.Next, fmt.Sprintf("%s needs %d members, and %d have scheduling gates, which must be removed", name, g.MinMember, g.Gated))
		return true
	case g.Fit >= g.Missing:
		r.Next = append(r.Next, fmt.Sprintf("nothing that is seen here: %s needs %d more members at once, and %d fit now. The scheduler tries again after its backoff, or when room is made", name, g.Missing, g.Fit))
		return true
	case g.Stuck == "":
		r.Next = append(r.Next, name+" "+g.Why)
		return true
	}
	r.Next = append(r.Next, fmt.Sprintf("%s needs %d more members at once, and %d of them fit now; %s is the first that does not", name, g.Missing, g.Fit, g.Stuck))
	return false
}

// zoneSteps says for each zone what would make it take the pod.
func (r *Report) zoneSteps(pod *corev1.Pod) {
	fit := 0
	for i := range r.Zone {
		fit += r.Zone[i].Fit
	}
	if fit > 0 && (r.Gang == nil || r.Gang.Missing == 0) {
		step := fmt.Sprintf("nothing that is seen here: %d nodes would take it. ", fit)
		if len(r.Said) == 0 {
			step += fmt.Sprintf("No scheduler has said anything about it: is one running that is called %q?", cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName))
		} else {
			step += "The scheduler's own words are of its last attempt; it tries again when something changes, and every 5 minutes"
		}
		r.Next = append(r.Next, step)
		return
	}
	for i := range r.Zone {
		z := &r.Zone[i]
		if z.Fit > 0 {
			continue
		}
		if step := stepOf(z); step != "" {
			r.Next = append(r.Next, "in zone "+status.Name(z.Zone)+": "+step)
		}
	}
	if len(r.Next) == 0 {
		r.Next = append(r.Next, "no single change: every node has several obstacles, see above")
	}
}

// stepOf returns the remedy of the obstacle that stands alone in the way on most nodes of a zone.
func stepOf(z *world.ZoneAnswer) string {
	remedies := map[string]int{}
	for _, o := range z.Obstacles {
		if o.Alone > 0 && o.Remedy != "" {
			remedies[o.Remedy] += o.Alone
		}
	}
	best := ""
	for _, remedy := range slices.Sorted(maps.Keys(remedies)) {
		if best == "" || remedies[remedy] > remedies[best] {
			best = remedy
		}
	}
	return best
}
