package reservecache

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/hypothetical"
)

// Reserve assumes the pod on the node. It fails with an error, so that the pod is retried, if the ledger already has
// the pod, which was bound while it was being scheduled.
//
// An owner of headroom takes slots of its own with it, if it needs their room: see [floor.Floor.Take].
//
// In a pod-group cycle, and in a search for victims, Reserve is a rehearsal and does nothing: the framework calls it
// again for real.
func (p *ReserveCache) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if state.IsPodGroupSchedulingCycle() || hypothetical.Marked(state) {
		return nil
	}
	r := p.running
	if err := r.ledger.AssumePod(pod, nodeName, r.clock.Now()); err != nil {
		return fwk.AsStatus(fmt.Errorf("node %q: %w", nodeName, err))
	}
	r.refused.forget(pod.UID)
	if d := cycleDataOf(state); d != nil && d.owner != nil && r.floor.take(&d.pod, nodeName) {
		r.server.RequestPass()
	}
	return nil
}

// Unreserve forgets the pod if it is assumed on that node. It does nothing otherwise: the informer may have shown the
// pod bound although the bind call failed, or gone.
func (p *ReserveCache) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	if state.IsPodGroupSchedulingCycle() || hypothetical.Marked(state) {
		return
	}
	if p.running.ledger.ForgetPod(pod.UID, nodeName) {
		p.running.server.RequestPass()
		return
	}
	klog.FromContext(ctx).V(4).Info("Nothing to unreserve", "pod", klog.KObj(pod), "node", klog.KRef("", nodeName))
}
