package reservecache

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Reserve assumes the pod on the node, in a slot if it needs or prefers one. What is held is checked once more,
// under the ledger's lock and against the cycle's snapshot, since slots may have been placed after PreFilter, and since
// Filter is skipped for some pods. It fails with an error, so that the pod is retried, when the room is held, and when the
// ledger has the pod already: it was bound while it was being scheduled.
//
// In a pod-group cycle Reserve is a rehearsal and changes nothing; the framework calls it again for real.
func (p *ReserveCache) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if state.IsPodGroupSchedulingCycle() {
		return nil
	}
	admission, err := p.admission(pod, nodeName)
	if err != nil {
		return fwk.AsStatus(err)
	}
	claim, err := p.running.ledger.AssumePodOnHold(pod, nodeName, admission, p.now())
	if err != nil {
		if errors.Is(err, ledger.ErrHeld) || errors.Is(err, ledger.ErrNoSlot) {
			reserveConflicts.Inc()
		}
		return fwk.AsStatus(err)
	}
	p.running.blocked.forget(pod.UID)
	if claim.UID != "" {
		p.running.reservations.PodsChanged(false)
		klog.FromContext(ctx).V(3).Info("Pod takes a held slot", "pod", klog.KObj(pod), "node", klog.KRef("", nodeName), "claim", claim.Kind, "uid", claim.UID)
	}
	return nil
}

// admission is what the pod is checked against. It must be called within the scheduling cycle.
func (p *ReserveCache) admission(pod *v1.Pod, nodeName string) (*ledger.Admission, error) {
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return nil, fmt.Errorf("node %q is not in the snapshot: %w", nodeName, err)
	}
	asker, _ := p.running.askerFor(pod)
	return &ledger.Admission{
		Asker:       asker,
		Requested:   requestedOf(info),
		Allocatable: amounts(info.GetAllocatable()),
		Present:     podsOf(info.GetPods()).has,
	}, nil
}

// Unreserve forgets the pod if it is assumed on that node. It does nothing otherwise: the informer may
// have shown the pod bound although the bind call failed, or gone.
func (p *ReserveCache) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	if state.IsPodGroupSchedulingCycle() {
		return
	}
	if p.running.ledger.ForgetPod(pod.UID, nodeName) {
		p.running.reservations.PodsChanged(true)
	} else {
		klog.FromContext(ctx).V(4).Info("Nothing to unreserve", "pod", klog.KObj(pod), "node", klog.KRef("", nodeName))
	}
}
