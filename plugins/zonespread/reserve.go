package zonespread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.ReservePlugin = (*ZoneSpread)(nil)

// Reserve records that the pod no longer waits and that its node's zone has room. In the cycles of pod groups it is a
// rehearsal, which proves nothing.
func (pl *ZoneSpread) Reserve(_ context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	policies := policiesOf(cycleState)
	if policies == nil || cycleState.IsPodGroupSchedulingCycle() {
		return nil
	}
	if node, err := pl.lister.NodeInfos().Get(nodeName); err == nil {
		for _, p := range policies.each {
			if zone, ok := node.Node().Labels[p.TopologyKey()]; ok && p.HasRun {
				pl.shared.policies.RecordFit(&p.Input, zone)
			}
		}
	}
	pl.shared.policies.Placed(pod)
	return nil
}

// Unreserve does nothing: that there was room stays true.
func (*ZoneSpread) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}
