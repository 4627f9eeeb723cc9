package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// EventsToRegister names the events after which a member that this plugin refused may be schedulable.
//
// PodGroups are not among them: the scheduler would wait for their informer, and not schedule at all
// where the CRD is missing. What happens to PodGroups and to other members reaches a waiting member
// through the worker, which activates it. The hints are for what only the scheduler knows in order:
// that its own view of a node has got room.
func (p *PermitGate) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:          fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete},
			QueueingHintFn: p.isSchedulableAfterPodDeleted,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint},
			QueueingHintFn: p.isSchedulableAfterNodeChange,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.UpdatePodLabel | fwk.UpdatePodSchedulingGatesEliminated},
			QueueingHintFn: p.isSchedulableAfterOwnChange,
		},
	}, nil
}

// isSchedulableAfterPodDeleted hears of a pod that left a node, or that was assumed and lost its node
// again. Room that another gang's rollback leaves does not end a backoff, for then two gangs could wake
// each other forever; except that the gang which has waited longer may take what a younger one let go.
func (p *PermitGate) isSchedulableAfterPodDeleted(_ klog.Logger, pod *v1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	key, ok := gangOf(pod)
	if !ok {
		return fwk.Queue, nil
	}
	deleted, isPod := object[*v1.Pod](oldObj)
	if isPod && p.shared.awaited(key, deleted.UID) {
		return p.hint(pod, true), nil
	}
	if isPod {
		if other, inGang := gangOf(deleted); inGang && (other == key || !p.shared.older(pod, deleted)) {
			return p.hint(pod, false), nil
		}
	}
	return p.hint(pod, true), nil
}

// isSchedulableAfterNodeChange hears of a node that is new or may fit more.
func (p *PermitGate) isSchedulableAfterNodeChange(_ klog.Logger, pod *v1.Pod, _, _ any) (fwk.QueueingHint, error) {
	return p.hint(pod, true), nil
}

// isSchedulableAfterOwnChange hears of a change of the pod itself: it may have left its gang.
func (p *PermitGate) isSchedulableAfterOwnChange(_ klog.Logger, pod *v1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	if changed, ok := object[*v1.Pod](newObj); ok {
		pod = changed
	}
	return p.hint(pod, false), nil
}

// hint queues a pod that would be admitted now, unless the gang needs a plan: then the worker wakes one member to make it, and the others
// would be refused one by one if there is none. It runs under the scheduling queue's lock.
func (p *PermitGate) hint(pod *v1.Pod, room bool) fwk.QueueingHint {
	key, ok := gangOf(pod)
	if !ok {
		return fwk.Queue
	}
	hint := fwk.QueueSkip
	p.shared.look(key, func(e *entry, now time.Time) {
		if room {
			e.gang.Room(now)
			p.shared.queue.Add(key)
		}
		if reason, _ := e.gang.Admit(pod.UID, now); reason == gang.ReasonNone && !e.gang.Scouting() {
			hint = fwk.Queue
		}
	})
	return hint
}

// older reports whether pod's gang has had its quorum for longer than other's; a gang that is not known
// any more counts as younger.
func (s *Shared) older(pod, other *v1.Pod) bool {
	key, _ := gangOf(pod)
	otherKey, _ := gangOf(other)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.gangs[key]
	if !ok {
		return false
	}
	o, ok := s.gangs[otherKey]
	if !ok {
		return true
	}
	a, b := e.gang.ReadySince(), o.gang.ReadySince()
	if a.Equal(b) {
		return key.String() < otherKey.String()
	}
	return !a.IsZero() && (b.IsZero() || a.Before(b))
}
