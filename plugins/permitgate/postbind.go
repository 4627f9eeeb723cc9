package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PostBind records that a member has been bound.
func (p *PermitGate) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if !state.IsPodGroupSchedulingCycle() {
		p.gangs.step(pod, func(e *gangEntry, now time.Time) { e.gang.Bound(pod.UID, now) })
	}
}
