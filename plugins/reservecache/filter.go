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
	// ErrReasonNoSlot is followed by the name of the reservation of which the pod needs a slot.
	ErrReasonNoSlot = "node(s) had no unused slot of "
	// ErrReasonFreeElsewhere: here the pod would use a slot, or an amount, of its own; on another node it would not need to.
	ErrReasonFreeElsewhere = "node(s) had room only in the pod's own slots, and others had free room"
	// ErrReasonSlotElsewhere: the pod owns a slot on another node, and uses it first.
	ErrReasonSlotElsewhere = "node(s) had no slot of the pod's own, and others had one"
)

// Filter keeps a pod off the nodes that have room only in what is held for others, and has owners use free room
// and slots in the order of their reservation's mode. For a pod of no reservation it neither locks nor allocates unless it refuses.
func (p *ReserveCache) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	d := cycleDataOf(state)
	if d == nil {
		return nil
	}
	status := p.filter(ctx, d, pod, info)
	if status != nil && !d.probing && d.refused != nil && d.refused.CompareAndSwap(false, true) {
		p.recordRefusal(d, pod)
	}
	return status
}

// recordRefusal records that holds have kept the cycle's pod off a node, be it only because another one is better.
func (p *ReserveCache) recordRefusal(d *cycleData, pod *v1.Pod) {
	r := p.running
	terms := waiting.Terms{Claim: d.asker.Claim, Use: d.asker.Use, Version: d.version}
	if r.waiting.Refused(pod, &d.request, terms, r.clock.Now()) {
		r.server.Kick()
	}
}

func (p *ReserveCache) filter(ctx context.Context, d *cycleData, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	allocatable, requested := resourcesOf(info.GetAllocatable()), requestedOf(info)
	view := p.running.view
	if d.reservation == nil && view.FitsBesideMostHeld(&d.request, &allocatable, &requested) {
		return nil // without a lookup by the node's name, which would miss the processor's cache
	}
	name := info.Node().Name
	held := view.Node(name) // nil if nothing is held there
	if held == nil && d.reservation == nil {
		return nil
	}
	question := d.question(&allocatable, &requested, p.running.ownedOn(info))
	verdict := held.Fit(&question)
	if !verdict.Fits {
		return p.refusal(d, info, held, &question, &verdict)
	}
	if d.reservation == nil {
		return nil
	}
	if !d.probing { // else this is the search for a better node, below
		d.choices.keepLarger(name, verdict.Takes) // for Reserve: Filter runs twice where pods are nominated
	}
	var reason string
	switch {
	case d.asker.Use == holds.UseLast && verdict.Uses: // it needs a slot here
		reason = ErrReasonFreeElsewhere
	case d.asker.Use == holds.UseFirst && !verdict.Uses: // it finds no slot here
		reason = ErrReasonSlotElsewhere
	default:
		return nil
	}
	if d.probing || p.betterElsewhere(ctx, d, pod) {
		return fwk.NewStatus(fwk.Unschedulable, reason)
	}
	return nil
}

// refusal says why holds keep the pod off a node. Preemption may look at the node unless the pod would be kept off even
// if all pods of a lower priority were gone.
func (p *ReserveCache) refusal(d *cycleData, info fwk.NodeInfo, held *holds.NodeHolds, question *holds.Question, verdict *holds.Verdict) *fwk.Status {
	reason := ErrReasonNoSlot
	if verdict.By != nil {
		reason = ErrReasonHeldFor + verdict.By.Name
	} else {
		reason += d.reservation.Name
	}
	var lower ledger.Resources // what pods of a lower priority take
	for _, other := range info.GetPods() {
		if schedulingv1.PodPriority(other.GetPod()) < d.asker.Priority {
			requests := requestsOf(other)
			lower.Add(&requests, 1)
		}
	}
	if lower.Pods == 0 {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason)
	}
	rest := question.Requested.Clone()
	rest.Add(&lower, -1)
	without := *question
	without.Requested = &rest
	without.Owned = p.running.ownedByAtLeast(info, d.asker.Priority)
	if !held.Fit(&without).Fits {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason)
	}
	return fwk.NewStatus(fwk.Unschedulable, reason)
}
