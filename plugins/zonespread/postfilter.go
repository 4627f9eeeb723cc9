package zonespread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.PostFilterPlugin = (*ZoneSpread)(nil)

// PostFilter tells the pod's policies which nodes refused it, from which they learn that a zone is full. It changes
// nothing about the pod; to be asked at all it must come before DefaultPreemption and PermitGate.
func (pl *ZoneSpread) PostFilter(_ context.Context, cycleState fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	// In the cycle of a pod group the snapshot holds pods that are only tried out.
	if verdicts := verdictsOf(cycleState); verdicts != nil && !cycleState.IsPodGroupSchedulingCycle() {
		nodes, err := pl.lister.NodeInfos().List()
		if err != nil {
			return nil, fwk.AsStatus(err)
		}
		pl.policies.Attempt(pod, verdicts, nodes, statuses)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}
