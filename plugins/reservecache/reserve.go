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

// errHeld means that a node has room for a pod only in slots that the pod may not use.
var errHeld = errors.New("the room is held")

// Reserve assumes the pod on the node, with what Filter found that it needs or prefers of its claim. It checks again
// with slots that were placed or used since PreFilter. It fails with an error, so that the pod is retried, if the room is now
// held, or if the ledger already has the pod, which was bound while it was being scheduled.
//
// In a pod-group cycle Reserve is a rehearsal, which the placement's state remembers until Unreserve; the framework calls it again
// for real.
func (p *ReserveCache) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	r, d := p.running, read(state)
	if state.IsPodGroupSchedulingCycle() {
		if d != nil && d.rehearsed != nil && d.owner != nil {
			d.rehearsed.set(pod.UID, nodeName, d.owner.Claim, d.choices.get(nodeName))
		}
		return nil
	}
	claim, part, present, err := p.admit(d, pod, nodeName)
	uses := !part.IsZero()
	// The hold comes first: until the ledger has the pod its part counts as unused, and is in no pod's way. A pod that was on the
	// node without its part would make the node look too full for the moment.
	if err == nil && uses {
		err = r.holds.Take(pod.UID, nodeName, claim, part, present)
	}
	if err != nil {
		reserveConflicts.Inc()
		return fwk.AsStatus(fmt.Errorf("node %q: %w", nodeName, err))
	}
	if err := r.ledger.AssumePod(pod, nodeName, r.clock.Now()); err != nil {
		r.leave(pod, nodeName)
		return fwk.AsStatus(err)
	}
	r.undone.drop(pod.UID)
	if r.waiting.Placed(pod.UID, nodeName) || uses {
		r.server.Kick()
	}
	if uses {
		klog.FromContext(ctx).V(3).Info("Pod takes held capacity", "pod", klog.KObj(pod), "node", klog.KRef("", nodeName), "part", part, "claim", claim)
	}
	return nil
}

// admit returns what the pod uses on the node, and of which claim, and which pods the cycle sees there. It must be called
// within the scheduling cycle.
func (p *ReserveCache) admit(d *cycleData, pod *v1.Pod, nodeName string) (claim types.UID, part ledger.Resources, present holds.Present, err error) {
	r := p.running
	if d == nil {
		asker, owner := r.askerFor(pod)
		if asker.IgnoreHolds || !r.view.Stale(nodeName) {
			return "", part, nil, nil
		}
		d = &cycleData{asker: asker, owner: owner, request: r.ledger.Requests(pod)}
	}
	part = d.choices.get(nodeName)
	if part.IsZero() && !r.view.Stale(nodeName) {
		return "", part, nil, nil
	}
	// What was rehearsed with other members was found with these on the node, of which the snapshot shows nothing now.
	if d.rehearsed != nil {
		return d.asker.Claim, part, nil, nil
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return "", part, nil, fmt.Errorf("it is not in the snapshot: %w", err)
	}
	present = podsOf(info.GetPods()).requests
	if !r.view.Stale(nodeName) {
		return d.asker.Claim, part, present, nil
	}
	allocatable, requested := amounts(info.GetAllocatable()), requestedOf(info)
	question := d.question(nodeName, &allocatable, &requested, present)
	verdict := r.holds.Node(nodeName).Fit(&question)
	switch {
	case verdict.Fits:
		return d.asker.Claim, verdict.Takes, present, nil
	case verdict.By != nil:
		return "", part, nil, fmt.Errorf("%w for %s: %s", errHeld, verdict.By.Name, verdict.Lacks)
	default:
		return "", part, nil, holds.ErrUsed
	}
}

// Unreserve forgets the pod if it is assumed on that node. It does nothing otherwise: the informer may
// have shown the pod bound although the bind call failed, or gone. If it is yet to show the pod bound, the pod uses again what it used.
func (p *ReserveCache) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	r := p.running
	if state.IsPodGroupSchedulingCycle() {
		if d := read(state); d != nil && d.rehearsed != nil {
			d.rehearsed.set(pod.UID, "", "", ledger.Resources{})
		}
		return
	}
	forgotten := r.ledger.ForgetPod(pod.UID, nodeName)
	if r.leave(pod, nodeName) || forgotten {
		r.server.Kick()
	} else {
		klog.FromContext(ctx).V(4).Info("Nothing to unreserve", "pod", klog.KObj(pod), "node", klog.KRef("", nodeName))
	}
}
