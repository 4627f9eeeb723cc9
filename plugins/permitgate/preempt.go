package permitgate

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/plan"
)

// A gang that finds no plan may have pods of lower priority evicted, if it has a plan without them. The room of the
// plan is held from then on, before anybody is evicted; so it is a claim on room that is still taken. The ledger
// knows such claims: a hold may lose its room, and keeps others off what comes free until it has it back.

// preemptionSlack is how much longer than its grace period a pod may take to end before a gang stops waiting for it.
const preemptionSlack = time.Minute

// preemption is a gang's plan that waits for pods to end.
type preemption struct {
	victims []victim
	// left tells of each pod whose room the plan needs, victims and others that were ending already, whether it has
	// left its node.
	left map[types.UID]bool
	// nodes are those of these pods, and of victims that are not waited for any more. It does not change.
	nodes map[types.UID]string
	// names are the namespaces and names of the same pods. They do not change either.
	names     map[types.UID]string
	minMember int
	until     time.Time // when the gang stops waiting
	summary   string    // whom it preempts, in words
	// given is true once the room has been given back because the plan does not stand any more. No others are named
	// until those that were evicted have left.
	given bool
	// rehearsed is true once the API server has said that it would let all victims go. Only the goroutine that evicts uses it.
	rehearsed bool
}

// victim is a pod that the gang has evicted.
type victim struct {
	pod   *v1.Pod
	node  string
	asked bool // its eviction is on the way
	done  bool // it has been evicted, or was gone already; then it has been asked, too
}

// waits returns how many pods have still to leave.
func (pr *preemption) waits() (n int) {
	for _, left := range pr.left {
		if !left {
			n++
		}
	}
	return n
}

// evicted returns how many pods have been evicted, or are on the way to it.
func (pr *preemption) evicted() (n int) {
	for i := range pr.victims {
		if pr.victims[i].asked {
			n++
		}
	}
	return n
}

// awaited returns the nodes of the pods that are waited for, those included of which the gang has heard that they have left: the
// scheduler's own view may trail that.
func (pr *preemption) awaited() map[types.UID]string {
	nodes := make(map[types.UID]string, len(pr.left))
	for uid := range pr.left {
		nodes[uid] = pr.nodes[uid]
	}
	return nodes
}

// preempt has pods evicted for a gang that has no plan, if it has one without them, or goes on waiting for them. The
// answer has a reason when it did; the gang has been rolled back then. It runs in a scheduling cycle.
func (p *PermitGate) preempt(ctx context.Context, state fwk.CycleState, key types.NamespacedName, t *task, cluster *view, detail string) answer {
	s := p.shared
	logger := klog.FromContext(ctx).WithValues("podGroup", key)
	var current *preemption
	may := false
	s.look(key, func(e *entry, now time.Time) {
		current = e.preempting
		may = s.mayPreemptLocked(e, t, now)
		cluster.barred = s.barredLocked(now)
	})
	switch {
	case current != nil:
		return p.awaitVictims(logger, key, t, cluster, current, detail)
	case !may || slices.ContainsFunc(t.request.Members, func(m plan.Member) bool { return neverPreempts(m.Pod) }):
		return answer{}
	}
	budgets, err := s.budgets.List(labels.Everything())
	if err != nil {
		logger.Error(err, "The PodDisruptionBudgets could not be read, so that the gang preempts nobody")
		return answer{}
	}
	r := &plan.Preemption{
		Request: t.request, Budgets: budgets,
		Without: func(gone []plan.Removal) plan.Cluster { return cluster.without(gone) },
	}
	r.Candidates = s.candidates(cluster, time.Now())
	o := &openings{p: p, state: state, cluster: cluster, candidates: r.Candidates, nodes: sets.New[string]()}
	r.Openings = func(pod *v1.Pod, nodes []int) map[int][]types.UID { return o.ask(ctx, pod, nodes) }
	found := plan.Preempt(r)
	if found.Refusal != nil || len(found.Victims)+len(found.Leaving) == 0 {
		return answer{}
	}
	gone := append(slices.Clone(found.Victims), found.Leaving...)
	if short := t.minResources.lacking(cluster.without(gone)); short != "" {
		return answer{}
	}
	if len(o.members) > 0 {
		if !o.accepted(ctx, &found) {
			logger.V(2).Info("The filters do not accept the members where pods would be evicted, so that the gang preempts nobody")
			return answer{}
		}
		s.look(key, func(e *entry, _ time.Time) { o.rememberLocked(&e.exclusions) })
	}
	pr := newPreemption(t, cluster, &found, time.Now())
	a := s.claimRoom(key, t, pr, holdSlotsWithout(found.Slots, cluster, gone), detail)
	if a.reason != gang.ReasonNone {
		preemptions.WithLabelValues("begun").Inc()
		logger.V(2).Info("The gang preempts", "what", pr.summary, "violations", found.Violations, "until", pr.until)
		s.evictions.Add(key)
	}
	return a
}

// mayPreemptLocked reports whether the gang may have pods evicted now. The room of members that wait or are on their
// way back is not free yet, so that a plan would evict too many. It is asked in scheduling cycles, which only the leader has: whoever
// evicts hears of the lead a moment later, and begins then.
func (s *Shared) mayPreemptLocked(e *entry, t *task, now time.Time) bool {
	if !s.args.GangPreemption || s.holdsLocked() == nil || now.Before(e.preemptAfter) {
		return false
	}
	if _, waiting, settled := e.gang.Counts(); waiting > 0 || e.gang.Preparing() > 0 || t.settled != settled {
		return false
	}
	return !slices.ContainsFunc(t.request.Members, func(m plan.Member) bool { return e.gang.Holds(m.Pod.UID) })
}

func neverPreempts(pod *v1.Pod) bool {
	return pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
}

// newPreemption notes whom a plan waits for, and how long.
func newPreemption(t *task, cluster *view, found *plan.Eviction, now time.Time) *preemption {
	pr := &preemption{
		left: map[types.UID]bool{}, nodes: map[types.UID]string{}, names: map[types.UID]string{}, minMember: t.minMember, until: now,
	}
	awaits := func(pod *v1.Pod, node string) {
		pr.left[pod.UID], pr.nodes[pod.UID], pr.names[pod.UID] = false, node, keyOf(pod).String()
	}
	on := map[string]bool{}
	for _, v := range found.Victims {
		node := cluster.Node(v.Node).Name
		pr.victims = append(pr.victims, victim{pod: v.Pod, node: node})
		awaits(v.Pod, node)
		on[node] = true
		grace := time.Duration(v1.DefaultTerminationGracePeriodSeconds) * time.Second
		if seconds := v.Pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
			grace = time.Duration(*seconds) * time.Second
		}
		pr.until = later(pr.until, now.Add(grace))
	}
	for _, l := range found.Leaving {
		awaits(l.Pod, cluster.Node(l.Node).Name)
		pr.until = later(pr.until, l.Pod.DeletionTimestamp.Time)
	}
	pr.until = pr.until.Add(preemptionSlack)
	pr.summary = fmt.Sprintf("waits for %s that %s ending, to make room for %s", count(len(found.Leaving), "pod"), areOrIs(len(found.Leaving)), count(len(found.Slots), "member"))
	if n := len(found.Victims); n > 0 {
		pr.summary = fmt.Sprintf("preempts %s on %s for %s", count(n, "pod"), count(len(on), "node"), count(len(found.Slots), "member"))
	}
	return pr
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func areOrIs(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// holdSlotsWithout is holdSlots for a cluster as it is when some pods are gone.
func holdSlotsWithout(slots []plan.Slot, cluster *view, gone []plan.Removal) []HoldSlot {
	taken := holdSlots(slots, cluster.nodes)
	without := map[string]map[types.UID]bool{}
	for _, g := range gone {
		node := cluster.Node(g.Node).Name
		if without[node] == nil {
			without[node] = map[types.UID]bool{}
		}
		without[node][g.Pod.UID] = true
	}
	for i := range taken {
		taken[i].Without = without[taken[i].Node]
	}
	return taken
}

// claimRoom rolls the gang back and holds the slots of its plan, all or none. Without the slots the answer has no
// reason, and nothing has been done.
func (s *Shared) claimRoom(key types.NamespacedName, t *task, pr *preemption, slots []HoldSlot, detail string) (a answer) {
	s.change(key, func(e *entry, now time.Time) {
		if phase := e.gang.Phase(); phase != gang.Gathering || e.gang.MinMember() != t.minMember {
			return
		}
		claim := t.claim
		claim.Wanted, claim.Deadline = len(slots), pr.until.Add(holdsSlack)
		if err := s.holds.Place(claim, slots); err != nil {
			return
		}
		if e.held != nil && e.held.gang != claim.Gang {
			s.freedLocked(e, s.holds.Release(e.held.gang))
		}
		e.held = heldFor(claim.Gang, slots)
		e.held.awaits = true
		e.collecting = collecting{}
		pr.minMember = t.minMember
		s.setPreemptingLocked(e, pr)
		e.failed = failedPreemption{}
		e.gang.SetCollects(false)
		words := detail + "; " + pr.summary
		e.gang.NoPlan("", words, now)
		a = answer{gang.ReasonBackoff, words}
		s.queue.AddAfter(key, pr.until.Sub(now)+time.Millisecond)
	})
	return a
}
