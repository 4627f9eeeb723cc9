package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/barrier"
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

// PreBind has a member wait at the barrier.
func (p *PermitGate) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	if p.native.Has(pod) && !state.IsPodGroupSchedulingCycle() {
		return p.native.PreBind(ctx, p.handle, pod)
	}
	key, ok := podgroup.Of(pod)
	if !ok || state.IsPodGroupSchedulingCycle() {
		return nil
	}
	var answer <-chan barrier.Answer
	p.gangs.change(key, func(e *gangEntry, now time.Time) { answer = e.barrier.Arrive(ctx, p.handle, key, pod.UID, now) })
	return barrier.Wait(ctx, key, answer, func() {
		p.gangs.change(key, func(e *gangEntry, _ time.Time) { e.barrier.Leave(pod.UID) })
	})
}
