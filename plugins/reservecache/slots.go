package reservecache

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// SlotsPlaced tells that slots have changed in the scheduling cycle of a pod, behind the plugin's PreFilter, and that the
// pod may own one of them now: Filter is to know. It must be called from a PreFilter of the cycle.
func (s *Shared) SlotsPlaced(state fwk.CycleState, pod *v1.Pod) {
	data, _ := state.Read(stateKey) // an error says that there is none
	d, ok := data.(*cycleData)
	if !ok {
		return // nothing was held: Filter is not asked about this pod, and its Reserve looks again
	}
	s.mu.Lock()
	r := s.running
	s.mu.Unlock()
	r.ledger.UpdateHoldsView(r.view)
	changed := *d
	changed.asker, changed.owner = r.askerFor(pod)
	state.Write(stateKey, &changed)
}
