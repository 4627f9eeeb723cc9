package reservecache

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// errHeld means that a node has room for a pod only in what is held for others.
var errHeld = errors.New("the room is held")

// Reserve assumes the pod on the node. What the pod needs of a claim that is not inclusive it takes from it. Reserve
// checks again with what was held since PreFilter. It fails with an error, so that the pod is retried, if the room is
// now held, or if the ledger already has the pod, which was bound while it was being scheduled.
//
// In a pod-group cycle Reserve is a rehearsal and does nothing: the framework calls it again for real.
func (p *ReserveCache) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if state.IsPodGroupSchedulingCycle() {
		return nil
	}
	r, d := p.running, cycleDataOf(state)
	p.collectMissed(nodeName)
	var slots int64
	var err error
	r.planner.Exclusively(func() { slots, err = p.admit(d, pod, nodeName) })
	if err != nil {
		if errors.Is(err, errHeld) || errors.Is(err, holds.ErrTooLittleHeld) {
			reserveConflicts.Inc()
		}
		return fwk.AsStatus(fmt.Errorf("node %q: %w", nodeName, err))
	}
	if r.waiting.Placed(pod.UID, nodeName) || slots > 0 {
		r.server.RequestPass()
	}
	if slots > 0 {
		klog.FromContext(ctx).V(3).Info("Pod takes held capacity", "pod", klog.KObj(pod), "node", klog.KRef("", nodeName),
			"slots", slots, "claim", d.requester.Claim)
	}
	return nil
}

// collectMissed lets reservations take the room of a node that has changed in a way that PreFilter did not look for, or before a
// pod-group cycle, in which PreFilter does not look.
func (p *ReserveCache) collectMissed(nodeName string) {
	r := p.running
	infos := p.handle.SnapshotSharedLister().NodeInfos()
	info, err := infos.Get(nodeName)
	if err != nil || r.planner.Knows(nodeName, info.GetGeneration()) {
		return
	}
	nodes, err := infos.List()
	if err != nil {
		return // a snapshot has no errors
	}
	if result := r.planner.Collect(cycleView{nodes: nodes, ledger: r.ledger, server: r.server}); len(result.Changed) > 0 || result.More {
		r.server.RequestPass()
	}
}

// admit assumes the pod on the node if there is room for it still, and returns how many slots it takes of its claim.
func (p *ReserveCache) admit(d *cycleData, pod *v1.Pod, nodeName string) (slots int64, err error) {
	r := p.running
	part, err := p.partToTake(d, pod, nodeName)
	if err != nil {
		return 0, err
	}
	if part.Pods == 0 {
		return 0, r.ledger.AssumePod(pod, nodeName, r.clock.Now())
	}
	taken, err := r.holds.Take(d.requester.Claim, nodeName, &part)
	if err != nil {
		return 0, err
	}
	if err := r.ledger.AssumePod(pod, nodeName, r.clock.Now()); err != nil {
		r.holds.Return(&taken)
		return 0, err
	}
	d.taken.Store(&taken)
	return part.Pods, nil
}

// partToTake returns the part that the pod takes of what its claim holds on the node, given what is held now.
func (p *ReserveCache) partToTake(d *cycleData, pod *v1.Pod, nodeName string) (part ledger.Resources, err error) {
	r := p.running
	hasCycleData := d != nil
	if !hasCycleData { // PreFilter found that no hold concerns the pod, but some may have come since
		requester, owner := r.requesterOf(pod)
		if requester.IgnoreHolds {
			return part, nil
		}
		d = &cycleData{requester: requester, reservation: owner, request: r.ledger.Requests(pod)}
	}
	part = d.parts.get(nodeName)
	// The view tells whether the holds have changed since Filter, but not whether other owners have come. That
	// matters to a pod that runs in its slot or not at all, and to the members of a pod group, which come together.
	ownersMatter := d.reservation != nil && (d.requester.Use == holds.UseOnly || d.inGroup)
	if !r.view.Outdated(nodeName) && !ownersMatter {
		return part, nil
	}
	input, err := p.reserveInput(d, nodeName)
	if err != nil {
		return part, err
	}
	result := r.holds.Node(nodeName).Fit(&input)
	switch {
	case result.Fits && (hasCycleData || result.Takes.Pods == 0): // cycleData remembers what a pod takes, for Unreserve
		return result.Takes, nil
	case result.HeldBy != nil:
		return part, fmt.Errorf("%w for %s: %s", errHeld, result.HeldBy.Name, result.Lacks)
	default:
		return part, holds.ErrTooLittleHeld
	}
}

// reserveInput asks for room for the pod on a node of the snapshot. Of a pod group's members the snapshot shows
// nothing, but the ledger has those that were reserved before.
func (p *ReserveCache) reserveInput(d *cycleData, nodeName string) (holds.FitInput, error) {
	r := p.running
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return holds.FitInput{}, fmt.Errorf("it is not in the snapshot: %w", err)
	}
	allocatable, requested := resourcesOf(info.GetAllocatable()), requestedOf(info)
	if !d.inGroup {
		return d.fitInput(&allocatable, &requested, r.ownedOn(info)), nil
	}
	var all ledger.Resources
	owned := map[types.UID]ledger.Resources{}
	for _, other := range r.ledger.PodsOn(nodeName) {
		all.Add(&other.Requests, 1)
		if owner := r.server.OwnerOf(other.Pod); owner != nil {
			owned = ledger.AddTo(owned, owner.Claim, &other.Requests)
		}
	}
	return d.fitInput(&allocatable, &all, func(claim types.UID) ledger.Resources { return owned[claim] }), nil
}

// Unreserve forgets the pod if it is assumed on that node, and returns what it took. It does nothing otherwise: the
// informer may have shown the pod bound although the bind call failed, or gone.
func (p *ReserveCache) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	if state.IsPodGroupSchedulingCycle() {
		return
	}
	r, d := p.running, cycleDataOf(state)
	forgotten, returned := false, false
	if d != nil && d.taken != nil && d.taken.Load() != nil {
		r.planner.Exclusively(func() {
			taken := d.taken.Swap(nil)
			forgotten = r.ledger.ForgetPod(pod.UID, nodeName)
			// A pod that is on the node after all keeps what it took.
			if at, known := r.ledger.GetPod(pod.UID); taken != nil && (!known || at.Node != nodeName) {
				r.holds.Return(taken)
				returned = true
			}
		})
	} else {
		forgotten = r.ledger.ForgetPod(pod.UID, nodeName)
	}
	if forgotten || returned {
		r.server.RequestPass()
	} else {
		klog.FromContext(ctx).V(4).Info("Nothing to unreserve", "pod", klog.KObj(pod), "node", klog.KRef("", nodeName))
	}
}
