package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/barrier"
	"zonewise.dev/plugins/permitgate/gang"
)

// PostBind records that a member has been bound.
func (p *PermitGate) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if !state.IsPodGroupSchedulingCycle() {
		p.step(pod, false, func(g *gang.Gang, _ *barrier.Barrier, now time.Time) { g.Bound(pod.UID, now) })
	}
}
