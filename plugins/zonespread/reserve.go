package zonespread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.ReservePlugin = (*ZoneSpread)(nil)

// Reserve tells the pod's policies that a zone has room for it. In the cycles of pod groups it is a rehearsal that
// proves nothing.
func (pl *ZoneSpread) Reserve(_ context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if cycleState.IsPodGroupSchedulingCycle() || verdictsOf(cycleState) == nil {
		return nil
	}
	if node, err := pl.lister.NodeInfos().Get(nodeName); err == nil {
		pl.policies.Took(pod, node.Node())
	}
	return nil
}

// Unreserve does nothing: that there was room stays true.
func (*ZoneSpread) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}
