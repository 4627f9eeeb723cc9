package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/waiting"
)

// Reasons of nodes that Filter refuses.
const (
	// ErrReasonHeldFor is followed by the name of the reservation.
	ErrReasonHeldFor = "node(s) had room only in what is held for "
	// ErrReasonNoSlot is followed by the name of the reservation in which the pod has to run, by ownerPolicy Required,
	// and of which too little is unused.
	ErrReasonNoSlot = "node(s) had no unused slot of "
	// ErrReasonFreeElsewhere means that the pod would use a slot, or an amount, of its own here, and that another
	// node has free room.
	ErrReasonFreeElsewhere = "node(s) had room only in the pod's own slots, and others had free room"
	// ErrReasonSlotElsewhere means that the pod would use free room here, and that another node has an unused slot of
	// its own.
	ErrReasonSlotElsewhere = "node(s) had no slot of the pod's own, and others had one"
)

// Filter keeps a pod off the nodes that have room only in what is held for others, and with ownerPolicy Required off
// those where its request does not lie in what is unused of its own hold. An owner is also kept off nodes where it
// would use slots and free room in the other order than its reservation's mode says, if another node is better.
//
// For a pod of no reservation it neither locks nor allocates, unless it refuses, or extended resources are held or
// asked for by the owners of a claim that is inclusive.
func (p *ReserveCache) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	d := cycleDataOf(state)
	if d == nil {
		return nil
	}
	status := p.filter(ctx, d, pod, info)
	counts := status != nil && !d.inBetterNodeSearch && d.refusalRecorded != nil
	if counts && d.refusalRecorded.CompareAndSwap(false, true) {
		p.recordRefusal(d, pod)
	}
	return status
}

// recordRefusal records, once in a cycle, that Filter has kept the pod off a node, also where it was to leave its own
// slots, or free room, alone. The worker wakes the pod when there is room.
func (p *ReserveCache) recordRefusal(d *cycleData, pod *v1.Pod) {
	r := p.running
	terms := waiting.Terms{Claim: d.requester.Claim, Use: d.requester.Use, Version: d.version}
	if r.waiting.Refused(pod, &d.request, terms, r.clock.Now()) {
		r.server.RequestPass()
	}
}

func (p *ReserveCache) filter(ctx context.Context, d *cycleData, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	allocatable, requested := resourcesOf(info.GetAllocatable()), requestedOf(info)
	view := p.running.view
	if d.reservation == nil && view.FitsBesideLargest(&d.request, &allocatable, &requested) {
		return nil // without a lookup by the node's name, which would miss the processor's cache
	}
	name := info.Node().Name
	held := view.Node(name) // nil if nothing is held there
	if held == nil && d.reservation == nil {
		return nil
	}
	input := d.fitInput(&allocatable, &requested, p.running.ownedOn(info))
	result := held.Fit(&input)
	if !result.Fits {
		return p.refusal(d, info, held, &input, &result)
	}
	if d.reservation == nil {
		return nil
	}
	if !d.inBetterNodeSearch {
		d.parts.keepLarger(name, result.Takes) // for Reserve
	}
	var reason string
	switch {
	case d.requester.Use == holds.UseLast && result.UsesOwn: // Headroom: free room on another node goes first
		reason = ErrReasonFreeElsewhere
	case d.requester.Use == holds.UseFirst && !result.UsesOwn: // Guarantee: an unused slot on another node goes first
		reason = ErrReasonSlotElsewhere
	default:
		return nil
	}
	// When called from the search for a better node itself, reject lesser nodes so that only better ones count.
	// A hypothetical pod is filtered on copies of nodes that differ from the snapshot, in which the search looks: it has to fit, no more.
	if d.inBetterNodeSearch || d.refusalRecorded != nil && p.betterElsewhere(ctx, d, pod) {
		return fwk.NewStatus(fwk.Unschedulable, reason)
	}
	return nil
}

// refusal says why holds keep the pod off a node. If the pod would be kept off even without all pods of a lower
// priority, the status is UnschedulableAndUnresolvable, so that preemption skips the node.
func (p *ReserveCache) refusal(
	d *cycleData, info fwk.NodeInfo, held *holds.NodeHolds, input *holds.FitInput, result *holds.FitResult,
) *fwk.Status {
	reason := ErrReasonNoSlot
	if result.HeldBy != nil {
		reason = ErrReasonHeldFor + result.HeldBy.Name
	} else {
		reason += d.reservation.Name
	}
	var lower ledger.Resources // the requests of pods of a lower priority, their number in Pods
	for _, other := range info.GetPods() {
		if schedulingv1.PodPriority(other.GetPod()) < d.requester.Priority {
			requests := p.running.ledger.Requests(other.GetPod())
			lower.Add(&requests, 1)
		}
	}
	if lower.Pods == 0 {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason)
	}
	requested := input.Requested.Minus(&lower)
	without := *input
	without.Requested = &requested
	without.Owned = p.running.ownedByAtLeast(info, d.requester.Priority)
	if !held.Fit(&without).Fits {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason)
	}
	return fwk.NewStatus(fwk.Unschedulable, reason)
}
