package permitgate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// PreFilter restricts a member to its proposed nodes. For the scout of a gang it makes the proposal for all members. It
// refuses a member whose gang has been refused or rolled back since the member entered the active queue.
//
// A member's way:
//
//	PreEnqueue  kept until the gang is admitted and the member is its scout, or of its round
//	PreFilter   the scout proposes for all (propose.go): the gang is refused, or gathers; the others get their nodes, or
//	            their domain (attempt.go)
//	PostFilter  no node fits: once more on all nodes, or the member has failed; the gang may preempt
//	Reserve     the member takes its node, and leaves the planned one to another
//	Permit      waits, while the bind of one of each template is rehearsed, until the worker releases the quorum
//	PreBind     waits at the barrier; the last to come commits all
//	PostBind    bound
//	Unreserve   at any time after Reserve: the node is lost, and the gang rolled back if the quorum needs the member
//	(a cycle that ends elsewhere shows at the next PreEnqueue)
func (p *PermitGate) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if p.proposer.runner.hypothetical {
		return nil, fwk.NewStatus(fwk.Skip) // a hypothetical question, see filterRunner
	}
	p.startCycle(ctx)
	id, member := podgroup.Of(pod)
	switch {
	case state.IsPodGroupSchedulingCycle():
		return p.preFilterNative(ctx, state, pod, nodes)
	case !member || pod.Spec.NodeName != "":
		return nil, p.skipFilter(pod)
	}
	a, status := p.beginAttempt(ctx, state, id, pod, nodes)
	state.Write(attemptKey, a)
	switch {
	case status != nil:
		return nil, status
	case a.nodes == nil:
		return nil, p.skipFilter(pod)
	}
	return &fwk.PreFilterResult{NodeNames: a.nodes}, nil // Filter confines it too, on the node that it is nominated to
}

// skipFilter has a pod's cycle go without this plugin's Filter, unless a starving gang keeps nodes from the pod.
func (p *PermitGate) skipFilter(pod *v1.Pod) *fwk.Status {
	if claim := p.gangs.keeping.claim.Load(); claim != nil && claim.concerns(pod) {
		return nil
	}
	return fwk.NewStatus(fwk.Skip)
}

// PreFilterExtensions returns nil: other pods on a node change nothing here.
func (*PermitGate) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// startCycle does what each cycle does: it proves that this process leads. The first one goes on when what only the
// leader does has begun: what follows from it would otherwise look like the work of another process, and no process
// would report it.
func (p *PermitGate) startCycle(ctx context.Context) {
	p.keptOff.Store(nil)
	p.shared.cycles.Add(1)
	p.shared.leader.Cycle()
	p.begun.Do(func() {
		p.shared.takeLead()
		p.shared.awaitSync(ctx)
	})
}
