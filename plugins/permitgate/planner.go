package permitgate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/plan"
)

// ZonePolicies are rules about zones that members have besides their own constraints.
type ZonePolicies interface {
	// Key returns a text that is the same for pods which the rules of a namespace treat alike, and empty
	// for a pod that none of them is about. It is called often.
	Key(pod *v1.Pod) string
	// Rules returns what the rules say about a pod, with the nodes of the scheduling cycle; nil when they
	// refuse nothing.
	Rules(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) plan.Rules
}

// WithZonePolicies has plans keep zone policies. policies is called for each plan, and returns nil when
// there are none.
func WithZonePolicies(policies func() ZonePolicies) Option {
	return func(s *Shared) { s.policies = policies }
}

// maxPlanTries bounds how often a member's cycle plans because the gang changed meanwhile.
const maxPlanTries = 3

// place returns the node that a member is to go to, empty when it may go anywhere, or the refusal of a
// member that may go nowhere. If the gang has no plan yet this cycle makes it.
func (p *PermitGate) place(ctx context.Context, state fwk.CycleState, key types.NamespacedName, pod *v1.Pod, nodes []fwk.NodeInfo) (string, *fwk.Status) {
	for range maxPlanTries {
		where, slot := gang.PlaceAnywhere, gang.Slot{}
		var holds Holds
		p.shared.look(key, func(e *entry, now time.Time) {
			where, slot = e.gang.Place(pod.UID, now)
			holds = p.shared.holds
		})
		switch where {
		case gang.PlaceAnywhere:
			return "", nil
		case gang.PlacePinned:
			if holds != nil {
				holds.Placed(state, pod)
			}
			return slot.Node, nil
		case gang.PlaceNowhere:
			return "", refusal(key, answer{reasonNotPlanned, "has a node for its quorum, and this member is tried when that is bound"})
		case gang.PlacePlan:
			if a := p.makePlan(ctx, state, key, pod, nodes); a.reason != gang.ReasonNone {
				return "", refusal(key, a)
			}
		}
	}
	return "", refusal(key, answer{reasonNotPlanned, "changes while it is planned"})
}

// reasonNotPlanned is the reason to wait of members that the plan has no node for.
const reasonNotPlanned gang.Reason = "NotPlanned"

// task is what a plan is made of besides the cluster.
type task struct {
	request   plan.Request
	minMember int
	settled   int // members that have a node
	claim     Claim
	priority  int32
	held      HoldsView
	members   map[types.UID]bool
	// minResources is what the cluster is to have free before a plan is tried.
	minResources minResources
	failure      string // why the last preemption failed, in words
}

// makePlan plans the gang and takes the slots, all or none. The answer has a reason when there is no plan; the
// gang has been rolled back then. It runs in a scheduling cycle, of which there is one at a time.
func (p *PermitGate) makePlan(ctx context.Context, state fwk.CycleState, key types.NamespacedName, pod *v1.Pod, nodes []fwk.NodeInfo) answer {
	s := p.shared
	start := time.Now()
	t := s.newTask(key, pod)
	cluster := p.prepare(ctx, state, &t, nodes)
	logger := klog.FromContext(ctx).WithValues("podGroup", key)
	s.warnOnce(logger)
	if short := t.minResources.lacking(cluster); short != "" {
		planDuration.WithLabelValues("refused").Observe(time.Since(start).Seconds())
		detail := plan.ShortageWords(t.minMember, short)
		if a := p.preempt(ctx, state, key, &t, cluster, detail); a.reason != gang.ReasonNone {
			return a
		}
		return s.noPlan(key, "", t.andFailure(detail))
	}
	result := plan.Make(t.request)
	if r := result.Refusal; r != nil {
		detail := r.Words(t.minMember, t.settled)
		planDuration.WithLabelValues("refused").Observe(time.Since(start).Seconds())
		logger.V(3).Info("No plan for the gang", "detail", detail, "took", time.Since(start))
		if a := p.preempt(ctx, state, key, &t, cluster, detail); a.reason != gang.ReasonNone {
			return a
		}
		a := s.noPlan(key, uidOf(r.Pod), t.andFailure(detail))
		s.collectRoom(logger, key, &t, cluster, holdSlots(result.Slots, nodes))
		return a
	}
	slots := make(map[types.UID]gang.Slot, len(result.Slots))
	for _, slot := range result.Slots {
		slots[slot.Pod.UID] = gang.Slot{Node: slot.Node, Class: slot.Class, Seq: slot.Seq, Ordered: slot.Ordered}
	}
	taken := holdSlots(result.Slots, nodes)
	if err := s.takeSlots(key, t.claim, slots, taken); err != nil {
		planDuration.WithLabelValues("refused").Observe(time.Since(start).Seconds())
		return s.noPlan(key, "", fmt.Sprintf("needs %d, and the plan cannot be held: %v", t.minMember, err))
	}
	planDuration.WithLabelValues("planned").Observe(time.Since(start).Seconds())
	logger.V(3).Info("Planned the gang", "members", len(slots), "took", time.Since(start))
	return answer{}
}

// prepare completes what a plan is made of, by what a scheduling cycle sees, and returns the cluster for it.
func (p *PermitGate) prepare(ctx context.Context, state fwk.CycleState, t *task, nodes []fwk.NodeInfo) *view {
	cluster := &view{
		nodes: nodes, nominated: p.handle.NominatedPodsForNode, held: t.held, gang: t.claim.Gang,
		priority: t.priority, member: func(uid types.UID) bool { return t.members[uid] },
	}
	t.request.Cluster = cluster
	t.request.ComparisonOperators = p.comparisonOperators
	if parallelizer := p.handle.Parallelizer(); parallelizer != nil {
		t.request.Parallel = func(n int, do func(i int)) { parallelizer.Until(ctx, n, do, Name) }
	}
	if p.shared.policies != nil {
		if policies := p.shared.policies(); policies != nil {
			t.request.RulesKey = policies.Key
			t.request.Rules = func(pod *v1.Pod) plan.Rules { return policies.Rules(ctx, state, pod, nodes) }
		}
	}
	return cluster
}

// andFailure adds to the reason why there is no plan why there is no preemption either.
func (t *task) andFailure(detail string) string {
	if t.failure != "" {
		return detail + "; " + t.failure
	}
	return detail
}

// holdSlots pairs a plan's slots with the nodes as the cycle sees them.
func holdSlots(slots []plan.Slot, nodes []fwk.NodeInfo) []HoldSlot {
	byName := make(map[string]fwk.NodeInfo, len(nodes))
	for _, info := range nodes {
		byName[info.Node().Name] = info
	}
	taken := make([]HoldSlot, 0, len(slots))
	for _, slot := range slots {
		taken = append(taken, HoldSlot{Pod: slot.Pod, Node: slot.Node, Info: byName[slot.Node]})
	}
	return taken
}

func uidOf(pod *v1.Pod) types.UID {
	if pod == nil {
		return ""
	}
	return pod.UID
}

// newTask gathers what a plan for the gang needs. pod is the member whose cycle it is, as the cycle has it; nil when it is another pod's.
func (s *Shared) newTask(key types.NamespacedName, pod *v1.Pod) task {
	t := task{members: map[types.UID]bool{}, priority: math.MaxInt32}
	if pod != nil {
		t.priority = corev1.PodPriority(pod)
	}
	s.look(key, func(e *entry, now time.Time) {
		if !e.gang.Replanned() {
			e.exclusions.startRound(now)
		}
		missing, need := e.gang.Missing()
		t.minMember = e.gang.MinMember()
		t.settled = t.minMember - need
		t.request.Need = need
		for _, uid := range missing {
			m := e.pods[uid]
			if pod != nil && uid == pod.UID {
				m = pod
			}
			if m == nil {
				continue
			}
			t.priority = min(t.priority, corev1.PodPriority(m))
			signature := e.signatureLocked(m)
			t.request.Members = append(t.request.Members, plan.Member{Pod: m, Excluded: e.exclusions.of(m, signature), Signature: signature})
		}
		for uid := range e.pods {
			t.members[uid] = true
		}
		t.claim = Claim{
			Gang: e.groupUID(), Name: key.String(), Priority: t.priority, Since: e.gang.ReadySince(),
			Deadline: now.Add(e.gang.Timeout() + s.args.PrepareTimeout.Duration + holdsSlack), Wanted: t.minMember,
		}
		if holds := s.holdsLocked(); holds != nil {
			t.held = holds.View()
		} else {
			t.held = s.plansLocked(e)
		}
		if e.group != nil {
			t.minResources = minResources(e.group.Spec.MinResources)
		}
		t.failure = s.failureLocked(e, now)
	})
	slices.SortFunc(t.request.Members, func(a, b plan.Member) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) })
	return t
}

// noPlan rolls the gang back.
func (s *Shared) noPlan(key types.NamespacedName, member types.UID, detail string) answer {
	s.change(key, func(e *entry, now time.Time) { e.gang.NoPlan(member, detail, now) })
	return answer{gang.ReasonBackoff, detail}
}

// takeSlots takes a plan's slots and gives them to the members. A gang that has changed meanwhile keeps
// none, and is asked again.
func (s *Shared) takeSlots(key types.NamespacedName, claim Claim, slots map[types.UID]gang.Slot, taken []HoldSlot) (err error) {
	s.change(key, func(e *entry, now time.Time) {
		holds := s.holdsLocked()
		if holds == nil {
			e.gang.SetPlan(slots, now)
			return
		}
		if e.held != nil && e.held.gang == claim.Gang && !e.held.collects && !e.held.awaits {
			// Those who have their node already keep their slot.
			missing, _ := e.gang.Missing()
			for uid, slot := range e.gang.Slots() {
				if m := e.held.pods[uid]; m != nil && e.held.slots[uid] == slot.Node && !slices.Contains(missing, uid) {
					taken = append(taken, HoldSlot{Pod: m, Node: slot.Node})
				}
			}
		}
		if err = holds.Place(claim, taken); err != nil {
			return
		}
		if e.held != nil && e.held.gang != claim.Gang {
			s.freedLocked(e, holds.Release(e.held.gang))
		}
		e.held = heldFor(claim.Gang, taken)
		s.placedLocked(e)
		e.held.changes = e.gang.SlotChanges() - 1 // whatever SetPlan does, the account is compared with it
		e.collecting = collecting{}
		e.gang.SetCollects(false)
		e.gang.SetPlan(slots, now)
	})
	return err
}

// groupUID returns the UID of the gang's PodGroup, empty when it does not exist.
func (e *entry) groupUID() types.UID {
	if e.group == nil {
		return ""
	}
	return e.group.UID
}
