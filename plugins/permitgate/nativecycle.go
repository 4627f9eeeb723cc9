package permitgate

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/native"
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

// preFilterNative refuses a member of a native gang if the gang provably does not fit, and confines it to the gang's domain. The first member of
// a run decides for all, by the nodes of that run: for a preemption these are without the victims.
func (p *PermitGate) preFilterNative(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.native.PreFilter(pod) {
		p.groupNodes = nil
		return nil, p.skipFilter(pod)
	}
	run := state.GetPodGroupSchedulingCycle()
	data, _ := run.Read(nativePlanKey) // not found is the only error
	plan, _ := data.(*nativePlan)
	if plan == nil {
		plan = p.planNative(ctx, state, pod, nodes)
		run.Write(nativePlanKey, plan)
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

// planNative makes the plan for a run. A gang that need not be packed is tried once before it has to be proved that it fits.
func (p *PermitGate) planNative(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *nativePlan {
	ask, ok := p.native.Request(pod)
	if !ask.Preempting {
		p.groupNodes = nil
	}
	if !ok {
		return &nativePlan{}
	}
	if ask.MovesOn {
		return &nativePlan{refused: p.refusal(gangID{ask.Key, true}, gang.ReasonBackoff, "is tried in its next domain before it preempts")}
	}
	if !ask.Preempting {
		if c := p.gangs.keeping.claim.Load(); c != nil && c.concerns(pod) {
			p.groupNodes = keptNodes(c, nodes)
		}
	}
	plan, answer := &nativePlan{}, native.Plan{}
	// With fewer members than the quorum lacks, kube-scheduler has seen some that are not known here yet.
	if (ask.Again || ask.Running || ask.Topology.Key != "") && ask.Need > 0 && len(ask.Missing) >= ask.Need {
		began := p.gangs.clock.Now()
		req := nativeRequest(&ask, pod)
		result := p.proposer.makeProposal(ctx, state, req, nodes)
		p.proposer.observe(ctx, req, result, began)
		if !ask.Preempting {
			p.keeper.keepForStarving(ctx, req, result, false)
		}
		switch {
		case result.proposal.Verdict == proposal.Exhausted:
			answer.Exhausted = true
			answer.Refusal = gang.Rollback{
				Cause:  gang.CauseUnschedulable,
				Detail: fmt.Sprintf("none of the %d domains of %s that could hold the gang accepts it", len(ask.Tried), req.proposal.Topology.Key),
			}
		case result.refusal.Cause != "":
			answer.Refusal = result.refusal
		default:
			answer.Domain = result.proposal.Domain
			plan.confined = domain{req.proposal.Topology.Key, answer.Domain}
		}
	} else if ask.Topology.Required {
		plan.confined = domainOf(p.handle.SnapshotSharedLister().NodeInfos(), ask.Topology.Key, ask.PlacedOn)
	}
	if !ask.Preempting {
		p.native.Planned(ask.Key, &answer)
	}
	if answer.Refusal.Cause != "" {
		return &nativePlan{refused: p.refusal(gangID{ask.Key, true}, gang.ReasonBackoff, answer.Refusal.ConditionMessage())}
	}
	if plan.confined.value == "" {
		return &nativePlan{}
	}
	plan.nodes = plan.confined.nodes(nodes)
	return plan
}

// nativeRequest is the input of a proposal for a native gang. pod is the member in the cycle.
func nativeRequest(ask *native.Request, pod *v1.Pod) *gangRequest {
	req := &gangRequest{
		gangID: gangID{ask.Key, true}, readySince: ask.ReadySince, running: ask.Running, pods: ask.Missing, members: ask.Members, boundOn: ask.PlacedOn, lostNodes: ask.LostNodes,
		minMember: ask.MinMember, rank: podgroup.Rank{Priority: corev1.PodPriority(pod), Created: ask.Created, Key: ask.Key},
	}
	req.proposal.Need = ask.Need
	req.proposal.Topology = proposal.Topology{Key: ask.Topology.Key, Required: ask.Topology.Required, Tried: ask.Tried}
	classes := map[string][]*v1.Pod{}
	for uid, missing := range ask.Missing {
		if uid == pod.UID {
			missing = pod
		}
		classes[ask.Needs[uid]] = append(classes[ask.Needs[uid]], missing)
	}
	req.setClasses(classes, pod, func(uid types.UID) bool { return ask.Refused[uid] })
	return req
}
