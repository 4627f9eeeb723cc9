package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
)

// nativePlanKey marks a run of a pod-group cycle with its plan.
const nativePlanKey = fwk.StateKey(Name + "/native")

// nativePlan is what a run of a pod-group cycle does with all members of a native gang.
type nativePlan struct {
	refused  *fwk.Status // nil if it goes on
	confined domain
	nodes    sets.Set[string] // of that domain
}

// Clone returns the plan itself, which does not change.
func (n *nativePlan) Clone() fwk.StateData { return n }

// preFilterNative refuses a member of a native gang if the gang provably does not fit, and confines it to the gang's
// domain. The first member of a run decides for all, by the nodes of that run: for a preemption these are without the
// victims.
func (p *PermitGate) preFilterNative(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.gangs.noteTried(pod) {
		return nil, p.skipFilter(pod)
	}
	shared := upstream.RunState(state)
	data, _ := shared.Read(nativePlanKey) // not found is the only error
	plan, _ := data.(*nativePlan)
	if plan == nil {
		plan = p.planNative(ctx, state, pod, nodes)
		shared.Write(nativePlanKey, plan)
	}
	switch {
	case plan.refused != nil:
		return nil, plan.refused
	case plan.confined == domain{}:
		return nil, p.skipFilter(pod)
	}
	state.Write(attemptKey, &attempt{confined: plan.confined, nodes: plan.nodes})
	return &fwk.PreFilterResult{NodeNames: plan.nodes}, nil
}

// groupRun is a run of a pod-group cycle.
type groupRun struct {
	// proposes is true if nodes are to be proposed: for a gang that is packed, or is refused if it provably does not
	// fit, because its last cycle has placed no member, or some run.
	proposes bool
	// preempting is true on a cluster without the pods that the group may preempt. movesOn is true if that is not to
	// be, because the run before was for one domain only, and the next one is tried first.
	preempting, movesOn bool
}

// beginRun begins a run of a native gang's cycle.
func (g *gangs) beginRun(id gangID, state fwk.CycleState) (run groupRun) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byID[id]
	if e == nil || !e.guarded() {
		return run
	}
	e.cycle.runs++
	run.proposes = e.group.Topology.Key != "" || !e.group.Constrained && (e.lastCycle.happened || e.gang.AnyPlaced())
	run.preempting = upstream.PreemptingRun(state, e.cycle.runs)
	run.movesOn = run.preempting && e.cycle.plan.domain != ""
	return run
}

// planNative makes the plan for a run. A gang that need not be packed is tried once before it has to be proved that it
// fits.
func (p *PermitGate) planNative(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *nativePlan {
	id, _ := podgroup.IDOf(pod)
	run := p.gangs.beginRun(id, state)
	if run.movesOn {
		return &nativePlan{refused: p.gangs.refusal(id, gang.ReasonBackoff, "is tried in its next domain before it preempts")}
	}
	if !run.proposes {
		return &nativePlan{}
	}
	plan, answer, req := &nativePlan{}, groupPlan{}, p.proposer.requestOf(id, pod)
	// With fewer members than the quorum lacks, kube-scheduler has seen some that are not known here yet.
	if req.proposal.Need > 0 && len(req.pods) >= req.proposal.Need {
		began := p.gangs.clock.Now()
		result := p.proposer.makeProposal(ctx, state, req, nodes)
		p.proposer.observe(ctx, req, result, began)
		if !run.preempting {
			p.keeper.keepForStarving(ctx, req, result, false)
		}
		answer = groupPlan{refusal: result.refusal, exhausted: result.proposal.Verdict == proposal.Exhausted}
		if result.refusal.Cause == "" {
			answer.domain = result.proposal.Domain
		}
		plan.confined = domain{req.proposal.Topology.Key, answer.domain}
	} else if req.proposal.Topology.Required {
		plan.confined = domainOf(p.handle.SnapshotSharedLister().NodeInfos(), req.proposal.Topology.Key, req.boundOn)
	}
	if !run.preempting {
		p.gangs.update(id, func(e *gangEntry, _ time.Time) { e.cycle.plan = answer })
	}
	if answer.refusal.Cause != "" {
		return &nativePlan{refused: p.gangs.refusal(id, gang.ReasonBackoff, answer.refusal.ConditionMessage())}
	}
	if plan.confined.value == "" {
		return &nativePlan{}
	}
	plan.nodes = plan.confined.nodes(nodes)
	return plan
}
