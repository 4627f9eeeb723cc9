package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// PreBindPreFlight returns Skip for pods that are not members.
func (p *PermitGate) PreBindPreFlight(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if p.native.Has(pod) && !state.IsPodGroupSchedulingCycle() {
		return p.native.PreBindPreFlight(pod)
	}
	if _, ok := podgroup.Of(pod); !ok || state.IsPodGroupSchedulingCycle() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind is the barrier: a member waits until a quorum has been prepared and nothing can stop its binds any
// more. It returns early when ctx ends, which is how a preemptor stops its victim. The plugin must be the last
// at this extension point, or a later plugin could still fail.
func (p *PermitGate) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	if p.native.Has(pod) && !state.IsPodGroupSchedulingCycle() {
		return p.native.PreBind(ctx, p.handle, pod)
	}
	key, ok := podgroup.Of(pod)
	if !ok || state.IsPodGroupSchedulingCycle() {
		return nil
	}
	answer := make(chan verdict, 1)
	p.gangs.change(key, func(e *entry, now time.Time) {
		if members := e.gang.Arrive(pod.UID, now); len(members) > 0 {
			p.commitLocked(ctx, e, members, now)
		}
		if arrival, detail := e.gang.Verdict(pod.UID); arrival != gang.ArrivalWait {
			answer <- verdict{arrival, detail}
			return
		}
		e.barrier[pod.UID] = answer
	})
	select {
	case v := <-answer:
		return v.status(key)
	case <-ctx.Done():
	}
	p.gangs.change(key, func(e *entry, _ time.Time) { delete(e.barrier, pod.UID) })
	select {
	case v := <-answer:
		// The commit was faster. Since then only the end of the scheduler can have stopped the pod.
		return v.status(key)
	default:
	}
	// Unreserve tells the gang.
	return fwk.AsStatus(context.Cause(ctx))
}

// commitLocked marks the members at the barrier once the last has arrived. After MarkPrebound no preemptor can stop a pod's
// binding cycle; it fails for a pod that has already been stopped.
func (p *PermitGate) commitLocked(ctx context.Context, e *entry, members []types.UID, now time.Time) {
	var sure, lost []types.UID
	for _, uid := range members {
		if preparing := p.handle.GetPodInPreBind(uid); preparing != nil && preparing.MarkPrebound() {
			sure = append(sure, uid)
		} else {
			lost = append(lost, uid)
		}
	}
	e.gang.Commit(sure, lost, now)
	klog.FromContext(ctx).V(3).Info("Gang at the barrier", "podGroup", e.key, "ready", len(sure), "stopped", len(lost))
}

func (v verdict) status(key types.NamespacedName) *fwk.Status {
	if v.arrival == gang.ArrivalPass {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, "PodGroup "+key.String()+": "+v.detail)
}
