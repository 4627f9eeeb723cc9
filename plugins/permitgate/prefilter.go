package permitgate

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
)

// attemptKey marks the cycle state of a member with what it is tried on.
const attemptKey = fwk.StateKey(Name + "/attempt")

// attempt is what a member is tried on in its cycle.
type attempt struct {
	began    time.Time
	refused  bool // by PreFilter, which does not make the gang fail
	hinted   []string
	confined domain
	// nodes are those that the member is tried on, nil for all.
	nodes sets.Set[string]
	// lifted are nominations of other members that are to be restored when the cycle ends.
	lifted []nomination
}

// Clone returns the attempt itself, which does not change.
func (a *attempt) Clone() fwk.StateData { return a }

// attemptOf returns what a member is tried on, nil for other pods.
func attemptOf(state fwk.CycleState) *attempt {
	data, _ := state.Read(attemptKey) // not found is the only error
	a, _ := data.(*attempt)
	return a
}

// PreFilter restricts a member to its proposed nodes. For the scout of a gang it makes the proposal for all members. It
// refuses a member whose gang has been refused or rolled back since the member entered the active queue.
//
// A member's way:
//
//	PreEnqueue  kept until the gang is admitted and the member is its scout, or of its round
//	PreFilter   the scout proposes for all: the gang is refused, or gathers; the others get their nodes, or their domain
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
	id, ok := podgroup.Of(pod)
	p.startCycle(ctx)
	if state.IsPodGroupSchedulingCycle() {
		return p.preFilterNative(ctx, state, pod, nodes)
	}
	if !ok || pod.Spec.NodeName != "" {
		return nil, p.skipFilter(pod)
	}
	began := p.gangs.clock.Now()
	a, status := p.beginAttempt(ctx, state, id, pod, nodes)
	a.began = began
	state.Write(attemptKey, a)
	if status != nil {
		return nil, status
	}
	for _, n := range a.lifted { // they would count on their own nodes alone, which makes spread constraints wrong
		p.handle.DeleteNominatedPodIfExists(n.pod)
	}
	switch {
	case len(a.hinted) > 0:
		a.nodes = sets.New(a.hinted...)
	case a.confined == domain{}:
		return nil, p.skipFilter(pod)
	default:
		a.nodes = a.confined.nodes(nodes)
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

// nominateAgain restores the nominations that were lifted for the cycle of a member.
func (p *PermitGate) nominateAgain(a *attempt) {
	if a != nil {
		nominate(klog.Background(), p.handle, a.lifted)
		a.lifted = nil
	}
}

// beginAttempt returns what a member is tried on, or why it is refused. If it is the scout, it proposes for all members
// first, and then enters once more, as one of the round that has begun.
func (p *PermitGate) beginAttempt(ctx context.Context, state fwk.CycleState, id gangID, pod *v1.Pod, nodes []fwk.NodeInfo) (*attempt, *fwk.Status) {
	scout, a, status := p.enterCycle(id, pod)
	if scout {
		status = p.propose(ctx, state, id, pod, nodes)
		if status == nil {
			scout, a, status = p.enterCycle(id, pod)
		}
		if status == nil && scout {
			status = p.refusal(id, gang.ReasonQueued, "has changed while its proposal was made")
		}
	}
	if status != nil {
		return &attempt{refused: true}, status
	}
	return a, nil
}

// enterCycle records that a member is in its cycle, and returns what it is tried on, or why it is refused. Neither if
// it is the scout.
func (p *PermitGate) enterCycle(id gangID, pod *v1.Pod) (scout bool, a *attempt, refused *fwk.Status) {
	reason, detail := gang.ReasonNotFound, ""
	infos := p.handle.SnapshotSharedLister().NodeInfos()
	p.gangs.update(id, func(e *gangEntry, now time.Time) {
		scout, reason, detail = e.gang.Enter(pod.UID, now)
		if scout || reason != gang.ReasonNone {
			return
		}
		if e.gang.RoundNumber() == 0 && (e.confined.key != e.topology().Key || !e.gang.AnyPlaced()) {
			e.confined = domain{} // no member is there any more, or the PodGroup names another label
		}
		if e.needsDomain() {
			e.chooseDomain(infos, e.nodesInUse()...)
		}
		a = &attempt{confined: e.domainOfMembers(), hinted: e.hintFor(pod.UID)}
		a.lifted = e.siblingsOn(a.hinted, pod.UID)
	})
	return scout, a, p.refusal(id, reason, detail)
}

// propose makes the proposal for the scout's gang. The status is nil if the scout's cycle continues.
func (p *PermitGate) propose(ctx context.Context, state fwk.CycleState, id gangID, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	began, changes := p.gangs.clock.Now(), 0
	p.gangs.read(id, func(e *gangEntry) { changes = e.gang.Changes() })
	req, result := p.proposer.propose(ctx, state, id, pod, nodes)
	switch {
	case result.refusal.Cause != "":
	case result.proposal.Verdict == proposal.Exhausted:
		result.refusal = p.exhausted(id, req)
	default:
		p.gather(id, req, result)
		return nil
	}
	victims, preempts := p.victims.find(ctx, state, req, result)
	if !preempts {
		p.keeper.keepForStarving(ctx, req, result, false)
	}
	took := p.gangs.clock.Since(began)
	p.gangs.change(id, func(e *gangEntry, now time.Time) {
		if result.proposal.Verdict == proposal.Exhausted {
			e.tried = nil // the next time it starts over
		}
		result.refusal.Member = pod.UID
		pause := lookPause(took, p.gangs.rivalsLocked(p.gangs.lackRoom, e))
		e.gang.Refuse(result.refusal, pause, now)
		e.notePause(pause, now)
		if _, freed := p.gangs.freed.last(); !freed.Before(began.Add(-informerLag)) { // perhaps too late for this look
			p.gangs.wakeLocked(e, true, now)
		}
		if e.gang.Changes() != changes { // a member that has come since is not in the plan
			e.gang.Changed(now)
		}
	})
	if preempts {
		p.victims.begin(ctx, id, &victims)
	}
	return p.refusal(id, gang.ReasonBackoff, result.refusal.ConditionMessage())
}

// gather begins the gang's round, if it may.
func (p *PermitGate) gather(id gangID, req *gangRequest, result *proposalResult) {
	round := req.roundOf(result)
	var astray []*v1.Pod
	p.gangs.change(id, func(e *gangEntry, now time.Time) {
		if !e.gang.Gather(round, now) {
			return
		}
		p.gangs.awaitMembersLocked(e, now)
		astray = e.startPlan(req, result)
	})
	for _, pod := range astray {
		p.handle.DeleteNominatedPodIfExists(pod)
	}
}

// exhausted returns the refusal of a gang after every domain that could hold it has been tried.
func (p *PermitGate) exhausted(id gangID, req *gangRequest) (r gang.Rollback) {
	p.gangs.read(id, func(e *gangEntry) {
		r = e.gang.LastRollback()
		r.Rejected, r.Backoff, r.Cause = 0, 0, gang.CauseUnschedulable
		r.Detail = fmt.Sprintf("none of the %d domains of %s that could hold the gang accepts it; in the last one: %s", len(e.tried), req.proposal.Topology.Key, r.Detail)
	})
	return r
}
