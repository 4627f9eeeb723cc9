package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/barrier"
)

// PreBindPreFlight returns Skip for pods that are not members.
func (p *PermitGate) PreBindPreFlight(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if state.IsPodGroupSchedulingCycle() || !p.gangs.guards(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind has a member wait at the barrier.
func (p *PermitGate) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	if state.IsPodGroupSchedulingCycle() {
		return nil
	}
	var answer <-chan barrier.Answer
	id, ok := p.gangs.step(pod, func(e *gangEntry, now time.Time) { answer = e.barrier.Arrive(ctx, p.handle, pod, now) })
	if !ok {
		return nil
	}
	return barrier.Wait(ctx, id.NamespacedName, answer, func() {
		p.gangs.step(pod, func(e *gangEntry, _ time.Time) { e.barrier.Leave(pod.UID) })
	})
}
