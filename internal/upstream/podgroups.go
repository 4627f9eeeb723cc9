package upstream

import fwk "k8s.io/kube-scheduler/framework"

// Shared is what plugins keep for several cycles: those of a pod group's members.
type Shared interface {
	Read(key fwk.StateKey) (fwk.StateData, error)
	Write(key fwk.StateKey, data fwk.StateData)
}

// GroupState returns what the cycles of a pod group's members share, nil outside of the group's cycle. The run for a
// preemption has a state of its own.
func GroupState(state fwk.CycleState) fwk.PodGroupCycleState {
	return state.GetPodGroupSchedulingCycle()
}

// RunState returns what the members share while they are tried on one set of nodes. A group has one such set.
func RunState(state fwk.CycleState) Shared { return state.GetPodGroupSchedulingCycle() }

// PreemptingRun reports whether the members are tried on a cluster without the pods that their group may preempt, in
// the given run of its cycle, from 1 on. The framework does not say so: it is what follows a run in which they did not
// fit.
func PreemptingRun(_ fwk.CycleState, run int) bool { return run > 1 }
