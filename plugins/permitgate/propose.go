package permitgate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/proposal"
)

// The scout of a gang decides in its PreFilter for all members: the gang is refused, or gathers.

// propose makes the proposal for the scout's gang. The status is nil if the scout's cycle continues.
func (p *PermitGate) propose(ctx context.Context, state fwk.CycleState, id gangID, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	began := p.gangs.clock.Now()
	req, result := p.proposer.propose(ctx, state, id, pod, nodes)
	if result.refusal.Cause == "" {
		p.gather(id, req, result)
		return nil
	}
	victims, preempts := p.victims.find(ctx, state, req, result)
	if !preempts {
		p.keeper.keepForStarving(ctx, req, result, false)
	}
	took, pause := p.gangs.clock.Since(began), time.Duration(0)
	if preempts {
		pause = catchUpPause // with the nominations: another pod would take the room between the cycles of two members
	}
	p.gangs.change(id, func(e *gangEntry, now time.Time) {
		if result.proposal.Verdict == proposal.Exhausted {
			if !preempts && !p.gangs.freed.since(e.triedSince) {
				result.refusal.Rounds = len(e.tried)
			}
			e.tried = nil // the next time it starts over
		}
		result.refusal.Member = pod.UID
		e.woken = false
		e.gang.Refuse(result.refusal, pause, min(lookShare*took*time.Duration(p.gangs.countRefusedLocked()), lookAtMost), now)
		p.gangs.restLocked(e, took, now)
		if p.gangs.freed.since(began) { // perhaps too late for this look
			p.gangs.wakeLocked(e, now)
		}
		if e.gang.Changes() != req.changes { // a member that has come since is not in the plan
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
			e.awaitMembers(now)
			e.startPlan(req, result)
			if len(e.tried) == 0 {
				e.triedSince = now
			}
		}
	})
}

// proposer makes proposals. Only scheduling cycles use it, one at a time.
type proposer struct {
	handle      fwk.Handle
	gangs       *gangs
	nominations *nominations
	claims      *claims
	runner      *filterRunner
	counted     *countedResources
	operators   bool  // tolerations may compare numbers
	holds       Holds // nil without
	start       int   // where the next search begins
}

// proposalResult is the result of a proposal for the gang.
type proposalResult struct {
	proposal proposal.Result
	// refusal is why the gang is refused; its Cause is empty when it is not.
	refusal gang.Rollback
	view    *clusterView
}

// propose makes the proposal for a gang whose scout is in its cycle.
func (p *proposer) propose(ctx context.Context, state fwk.CycleState, id gangID, scout *v1.Pod, nodes []fwk.NodeInfo) (*gangRequest, *proposalResult) {
	began := p.gangs.clock.Now()
	req := p.requestOf(id, scout)
	result := p.refuseSharedClaims(req)
	if result == nil {
		result = p.makeProposal(ctx, state, req, nodes)
	}
	p.observe(ctx, req, result, began)
	return req, result
}

// observe logs a proposal, and counts it.
func (p *proposer) observe(ctx context.Context, req *gangRequest, result *proposalResult, began time.Time) {
	verdict := map[proposal.Verdict]string{
		proposal.Refused: "refused", proposal.Proposed: "proposed", proposal.Unproven: "unproven", proposal.Exhausted: "refused",
	}[result.proposal.Verdict]
	took := p.gangs.clock.Since(began)
	proposalDuration.WithLabelValues(verdict).Observe(took.Seconds())
	klog.FromContext(ctx).V(3).Info("Proposed for a gang", "podGroup", req.gangID, "native", req.Native, "result", verdict, "detail", result.refusal.Detail,
		"members", result.proposal.Bound, "domain", result.proposal.Domain, "nodes", result.proposal.Nodes, "took", took)
}

// refuseSharedClaims returns the refusal of a gang whose members would wait for each other over a claim; nil otherwise.
func (p *proposer) refuseSharedClaims(req *gangRequest) *proposalResult {
	shared := p.claims.sharedBy(slices.Collect(maps.Values(req.pods)))
	if shared == "" {
		return nil
	}
	return &proposalResult{refusal: gang.Rollback{Cause: gang.CauseSharedClaim, Detail: shared}}
}

// requestAfterFailure returns what a gang asks for, and the nodes of the cycle, after a member has failed.
func (p *proposer) requestAfterFailure(ctx context.Context, state fwk.CycleState, id gangID, failed *v1.Pod) (*gangRequest, *proposalResult) {
	req := p.requestOf(id, failed)
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil || len(nodes) == 0 {
		return req, &proposalResult{}
	}
	p.complete(ctx, state, req, nodes)
	result := &proposalResult{view: p.viewFor(req, nodes)}
	result.proposal.Bound = req.proposal.Need // as far as the proposal knows
	req.proposal.Cluster = result.view
	return req, result
}

// makeProposal makes the proposal.
func (p *proposer) makeProposal(ctx context.Context, state fwk.CycleState, req *gangRequest, nodes []fwk.NodeInfo) *proposalResult {
	p.complete(ctx, state, req, nodes)
	result := &proposalResult{view: p.viewFor(req, nodes)}
	req.proposal.Cluster = result.view
	if lacking := p.lackingResource(req, result.view); lacking != "" {
		result.proposal = proposal.Result{Verdict: proposal.Refused, Bound: req.proposal.Need - 1}
		result.refusal = gang.Rollback{
			Cause:  gang.CauseNoRoom,
			Detail: fmt.Sprintf("needs %d, and the cluster lacks spec.minResources: %s", req.minMember, lacking),
			Reason: "the cluster lacks spec.minResources",
		}
		return result
	}
	result.proposal = proposal.Make(req.proposal)
	if n := len(nodes); n > 0 {
		p.start = (p.start + result.proposal.Nodes) % n
	}
	switch result.proposal.Verdict {
	case proposal.Refused:
		result.refusal = req.refusalOf(&result.proposal)
	case proposal.Exhausted:
		result.refusal = req.exhausted()
	case proposal.Proposed, proposal.Unproven:
	}
	return result
}

// complete completes the request from the cycle's nodes.
func (p *proposer) complete(ctx context.Context, state fwk.CycleState, req *gangRequest, nodes []fwk.NodeInfo) {
	r := &req.proposal
	p.counted.learn(ctx, state, r.Classes, nodes)
	r.SpreadKey, r.Start, r.TolerationOperators = spreadKey(r.Classes), p.start, p.operators
	if r.Topology.Key == "" {
		for i := range r.Classes {
			if key := proposal.SelfAffinity(r.Classes[i].Pod); key != "" && key != v1.LabelHostname {
				r.Topology.Key = key
				break
			}
		}
	}
	infos := p.handle.SnapshotSharedLister().NodeInfos()
	for _, name := range req.boundOn {
		info, err := infos.Get(name)
		if err != nil {
			continue
		}
		if value, ok := info.Node().Labels[r.Topology.Key]; ok && r.Topology.Key != "" {
			r.Topology.Domain = value
		}
	}
}

// spreadKey returns the label whose domains are proposed in turn: that of their first hard spread constraint, or the
// zone.
func spreadKey(classes []proposal.Class) string {
	for i := range classes {
		for k := range classes[i].Pod.Spec.TopologySpreadConstraints {
			if c := &classes[i].Pod.Spec.TopologySpreadConstraints[k]; c.WhenUnsatisfiable == v1.DoNotSchedule {
				return c.TopologyKey
			}
		}
	}
	return v1.LabelTopologyZone
}

// viewFor returns the nodes as a gang may use them.
func (p *proposer) viewFor(req *gangRequest, nodes []fwk.NodeInfo) *clusterView {
	return &clusterView{
		nodes: nodes, counted: p.counted, holds: p.holds,
		promised: p.gangs.promisedTo(req, p.handle, p.nominations.nodes()),
		claim:    p.gangs.keeping.claim.Load(),
		nominated: func(pod *v1.Pod, node string) bool {
			return pod.Status.NominatedNodeName == node || slices.ContainsFunc(upstream.NominatedTo(p.handle, node), func(nominated fwk.PodInfo) bool {
				return req.members[nominated.GetPod().UID]
			})
		},
	}
}
