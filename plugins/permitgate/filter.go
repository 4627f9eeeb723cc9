package permitgate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Filter confines the members of a packed gang to its domain. The result of PreFilter is not enough: the framework
// tries a pod's nominated node before it looks at that result. It also keeps other pods off the nodes that a
// starving gang keeps.
func (p *PermitGate) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	if c := p.gangs.keeping.claim.Load(); c != nil && c.keepsOff(pod, info, p.proposer.holds, p.isNominated) {
		if p.keptOff.Swap(c) == nil && state.IsPodGroupSchedulingCycle() { // which has no PostFilter for pods
			p.noteKeptOff(pod)
		}
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the gang "+c.gang.String()+" keeps this node")
	}
	if a := attemptOf(state); a != nil && !a.confined.has(info.Node()) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the gang must be in one domain of "+a.confined.key)
	}
	return nil
}
