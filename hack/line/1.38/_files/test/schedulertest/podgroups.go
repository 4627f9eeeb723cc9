package schedulertest

import "k8s.io/kubernetes/pkg/scheduler/framework"

// GroupCycle returns the state of a pod's cycle within the cycle of its pod group.
func GroupCycle() *framework.CycleState {
	state, placement := framework.NewCycleState(), framework.NewCycleState()
	state.SetPodGroupCycleState(framework.NewCycleState())
	state.SetPlacementCycleState(placement)
	return state
}
