package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// PostBind records that a member has been bound.
func (p *PermitGate) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if p.native.Has(pod) {
		p.native.PostBind(pod)
		return
	}
	key, ok := podgroup.Of(pod)
	if !ok || state.IsPodGroupSchedulingCycle() {
		return
	}
	p.gangs.change(key, func(e *gangEntry, now time.Time) { e.gang.Bound(pod.UID, now) })
}
