package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Reasons of nodes that Filter refuses.
const (
	// ErrReasonHeldFor is followed by the name of the reservation.
	ErrReasonHeldFor = "node(s) had room only in what is held for "
	// ErrReasonNoSlot is followed by the name of the reservation in which the pod has to run, by ownerPolicy Required,
	// and of which too little is unused.
	ErrReasonNoSlot = "node(s) had no unused slot of "
)

// Filter keeps a pod off a node that has room for it only in slots that it may not use, and with ownerPolicy Required
// off those where it does not lie in unused slots of its own. It looks at this node alone.
//
// For a pod of no reservation it neither locks nor allocates, unless it refuses, extended resources are held, or the
// node is not as the cycle's snapshot has it.
func (p *ReserveCache) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	d, r := cycleDataOf(state), p.running
	if d == nil {
		return nil
	}
	if !d.owner.NeedsSlot() && r.floor.floor.EmptyOn(info.Node().Name) {
		return nil
	}
	at := nodeAt(d.inGroup, info)
	at.Owned = func() map[types.UID]ledger.Resources { return ownedOn(d.claims, r.ledger, info) }
	verdict := r.floor.floor.Fit(&d.pod, &at)
	if verdict.Fits {
		return nil
	}
	if d.refused != nil && d.refused.CompareAndSwap(false, true) && r.refused.record(pod, &d.pod, r.clock.Now()) {
		r.server.RequestPass() // from now on it matters what is held where
	}
	reason := ErrReasonHeldFor + verdict.HeldFor
	if verdict.HeldFor == "" {
		reason = ErrReasonNoSlot + d.owner.Name
	}
	return fwk.NewStatus(p.refusalCode(d, info), reason)
}

// refusalCode is UnschedulableAndUnresolvable if slots would keep the pod off even without all pods of a lower
// priority, so that preemption skips the node.
func (p *ReserveCache) refusalCode(d *cycleData, info fwk.NodeInfo) fwk.Code {
	r := p.running
	var lower ledger.Resources
	left := map[types.UID]ledger.Resources{}
	for _, other := range info.GetPods() {
		requests := r.ledger.Requests(other.GetPod())
		if schedulingv1.PodPriority(other.GetPod()) < d.pod.Priority {
			lower.Add(&requests, 1)
		} else if owner := d.claims.OwnerOf(other.GetPod()); owner != nil && owner.Counted {
			ledger.AddTo(left, owner.Claim, &requests)
		}
	}
	if lower.Pods == 0 {
		return fwk.UnschedulableAndUnresolvable
	}
	at := nodeAt(true, info)
	at.Requested = at.Requested.Minus(&lower)
	at.Owned = func() map[types.UID]ledger.Resources { return left }
	if r.floor.floor.Fit(&d.pod, &at).Fits {
		return fwk.Unschedulable
	}
	return fwk.UnschedulableAndUnresolvable
}
