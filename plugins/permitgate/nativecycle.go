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

// planNative makes the plan for a run. A gang with too few members is refused: kube-scheduler counts those that
// terminate, too, and would evict pods for the others. Nodes are proposed for a gang that is packed, or whose last cycle
// has placed no member, or that runs: one that need not be packed is tried once before it has to be proved that it fits.
// A run is preempting on a cluster without the pods that the group may preempt.
func (p *PermitGate) planNative(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *nativePlan {
	id, _ := podgroup.IDOf(pod)
	proposes, preempting, movesOn := false, false, false
	reason, detail := gang.ReasonNone, ""
	p.gangs.update(id, func(e *gangEntry, _ time.Time) {
		if e.guarded() {
			e.cycle.runs++
			reason, detail = e.gang.BlockedBy()
			proposes = e.group.Topology.Key != "" || !e.group.Constrained && (e.lastCycle.happened || e.gang.AnyPlaced())
			preempting = upstream.PreemptingRun(state, e.cycle.runs)
			movesOn = preempting && e.cycle.plan.domain != ""
		}
	})
	switch {
	case reason == gang.ReasonTooFew:
		return &nativePlan{refused: p.gangs.refusal(id, reason, detail)}
	case movesOn: // the run before was for one domain only
		return &nativePlan{refused: p.gangs.refusal(id, gang.ReasonBackoff, "is tried in its next domain before it preempts")}
	case !proposes:
		return &nativePlan{}
	}
	plan, answer, req := &nativePlan{}, groupPlan{}, p.proposer.requestOf(id, pod)
	// With fewer members than the quorum lacks, kube-scheduler has seen some that are not known here yet.
	if req.proposal.Need > 0 && len(req.pods) >= req.proposal.Need {
		began := p.gangs.clock.Now()
		result := p.proposer.makeProposal(ctx, state, req, nodes)
		p.proposer.observe(ctx, req, result, began)
		if !preempting {
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
	if !preempting {
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
