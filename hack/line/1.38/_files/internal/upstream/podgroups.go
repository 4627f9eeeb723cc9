package upstream

import fwk "k8s.io/kube-scheduler/framework"

// Shared is what plugins keep for several cycles: those of a pod group's members.
type Shared interface {
	Read(key fwk.StateKey) (fwk.StateData, error)
	Write(key fwk.StateKey, data fwk.StateData)
}

// GroupState returns what the cycles of a pod group's members share, nil outside of the group's cycle. The run for a
// preemption has a state of its own.
func GroupState(state fwk.CycleState) fwk.PodGroupCycleState { return state.GetPodGroupCycleState() }

// RunState returns what the members share while they are tried on one set of nodes: a group may have several in a
// cycle.
func RunState(state fwk.CycleState) Shared { return state.GetPlacementCycleState() }

// preemptionKey is the key of k8s.io/kubernetes/pkg/scheduler/framework/preemption.PodGroupPreemptionState.
const preemptionKey fwk.StateKey = "PodGroupPreemptionState"

// PreemptingRun reports whether the members are tried on a cluster without the pods that their group may preempt.
func PreemptingRun(state fwk.CycleState, _ int) bool {
	for group := state.GetPodGroupCycleState(); group != nil; {
		if _, err := group.Read(preemptionKey); err == nil { // not found is the only error
			return true
		}
		parent := group.GetParentPlacementCycleState()
		if parent == nil {
			return false
		}
		group = parent.GetPodGroupCycleState()
	}
	return false
}
