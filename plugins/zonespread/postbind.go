package zonespread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.PostBindPlugin = (*ZoneSpread)(nil)

// PostBind records that the pod no longer waits and that its node's zone had room. What comes before may be undone, and
// proves nothing.
func (pl *ZoneSpread) PostBind(_ context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodeName string) {
	policies := policiesOf(cycleState)
	if policies == nil {
		return
	}
	for _, p := range policies.each {
		pl.shared.policies.Bound(pod, &p.Input, nodeName)
	}
}
