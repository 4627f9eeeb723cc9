package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/proposal"
)

// The scout of a gang decides in its PreFilter for all members: the gang is refused, or gathers.

// propose makes the proposal for the scout's gang. The status is nil if the scout's cycle continues.
func (p *PermitGate) propose(ctx context.Context, state fwk.CycleState, id gangID, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	began, changes := p.gangs.clock.Now(), 0
	p.gangs.read(id, func(e *gangEntry) { changes = e.gang.Changes() })
	req, result := p.proposer.propose(ctx, state, id, pod, nodes)
	if result.refusal.Cause == "" {
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
		e.gang.Refuse(result.refusal, p.gangs.pauseLocked(e, took, now), now)
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
	return p.gangs.refusal(id, gang.ReasonBackoff, result.refusal.ConditionMessage())
}

// gather begins the gang's round, if it may.
func (p *PermitGate) gather(id gangID, req *gangRequest, result *proposalResult) {
	round := req.roundOf(result)
	p.gangs.change(id, func(e *gangEntry, now time.Time) {
		if e.gang.Gather(round, now) {
			p.gangs.awaitMembersLocked(e, now)
			e.startPlan(req, result)
		}
	})
}
