package permitgate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/proposal"
)

// proposer makes proposals. Only scheduling cycles use it, one at a time.
type proposer struct {
	handle      fwk.Handle
	gangs       *gangs
	nominations *nominations
	claims      *sharedClaims
	runner      *filterRunner
	filters     *profileFilters
	holds       Holds // nil without
	start       int   // where the next search begins
}

// gangRequest is what a gang asks for: the input of a proposal besides the nodes.
type gangRequest struct {
	key       types.NamespacedName
	proposal  proposal.Request
	pods      map[types.UID]*v1.Pod // the missing members
	minMember int
	priority  int32
	settings  settings
	// knownNodes are nodes that members were given before: by an earlier scheduler, or by a preemption whose victims may still be
	// there.
	knownNodes map[types.UID]string
	victims    map[types.UID]string
	// boundOn are the nodes of bound members.
	boundOn []string
	members map[types.UID]bool // all of them
	// neverPreempts is true if a member must not preempt.
	neverPreempts bool
}

// proposalResult is the result of a proposal for the gang.
type proposalResult struct {
	proposal proposal.Result
	// refusal is why the gang is refused; its Cause is empty when it is not.
	refusal gang.Rollback
	view    *clusterView
}

// propose makes the proposal for a gang whose scout is in its cycle.
func (p *proposer) propose(ctx context.Context, state fwk.CycleState, key types.NamespacedName, scout *v1.Pod, nodes []fwk.NodeInfo) (*gangRequest, *proposalResult) {
	began := p.gangs.clock.Now()
	req := p.requestOf(key, scout)
	result := p.makeProposal(ctx, state, req, nodes)
	verdict := map[proposal.Verdict]string{
		proposal.Refused: "refused", proposal.Proposed: "proposed", proposal.Unproven: "unproven", proposal.Exhausted: "refused",
	}[result.proposal.Verdict]
	took := p.gangs.clock.Since(began)
	proposalDuration.WithLabelValues(verdict).Observe(took.Seconds())
	klog.FromContext(ctx).V(3).Info("Proposed for a gang", "podGroup", key, "result", verdict, "detail", result.refusal.Detail,
		"members", len(result.proposal.Slots), "domain", result.proposal.Domain, "nodes", result.proposal.Nodes, "took", took)
	return req, result
}

// requestOf collects what the gang asks for. It uses the scout's pod of the cycle, as the first of its class.
func (p *proposer) requestOf(key types.NamespacedName, scout *v1.Pod) *gangRequest {
	req := &gangRequest{key: key, pods: map[types.UID]*v1.Pod{}, knownNodes: map[types.UID]string{}, members: map[types.UID]bool{}}
	classes, refused := map[string][]*v1.Pod{}, map[types.UID]bool{} // by signature; those whose binds were refused
	p.gangs.read(key, func(e *gangEntry) {
		var missing []types.UID
		missing, req.proposal.Need = e.gang.Missing()
		req.minMember, req.priority, req.settings = e.gang.MinMember(), e.lowestPriority(), e.settings
		if e.preempting != nil {
			req.victims = e.preempting.victims
		}
		req.proposal.Topology = proposal.Topology{Key: e.settings.topology.Key, Required: e.settings.topology.Required, Tried: e.tried}
		req.boundOn = e.nodesInUse()
		for uid := range e.pods {
			req.members[uid] = true
		}
		for _, uid := range missing {
			m := e.pods[uid]
			if m == nil {
				continue
			}
			pod := m.pod
			if scout != nil && uid == scout.UID {
				pod = scout
			}
			req.pods[uid], refused[uid] = pod, e.gang.BindRefused(uid)
			if node := e.knownNode(uid); node != "" {
				req.knownNodes[uid] = node
			}
			if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever {
				req.neverPreempts = true
			}
			classes[m.signature] = append(classes[m.signature], pod)
		}
	})
	for _, signature := range slices.Sorted(maps.Keys(classes)) {
		pods := classes[signature]
		slices.SortFunc(pods, func(a, b *v1.Pod) int { return byAge(a, b, scout) })
		c := proposal.Class{Pod: pods[0]}
		for _, last := range []bool{false, true} { // the quorum may do without members that would not be bound
			for _, pod := range pods {
				if refused[pod.UID] == last {
					c.Members = append(c.Members, pod.UID)
				}
			}
		}
		req.proposal.Classes = append(req.proposal.Classes, c)
	}
	return req
}

// byAge orders pods by creation, then by name, with first at the front.
func byAge(a, b, first *v1.Pod) int {
	if first != nil && a.UID != b.UID {
		switch first.UID {
		case a.UID:
			return -1
		case b.UID:
			return 1
		}
	}
	return cmp.Or(
		a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time),
		cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
	)
}

// requestAfterFailure returns what a gang asks for, and the nodes of the cycle, after a member has failed.
func (p *proposer) requestAfterFailure(ctx context.Context, state fwk.CycleState, key types.NamespacedName, failed *v1.Pod) (*gangRequest, *proposalResult) {
	req := p.requestOf(key, failed)
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil || len(nodes) == 0 {
		return req, &proposalResult{}
	}
	p.complete(ctx, state, req, nodes)
	result := &proposalResult{view: p.viewFor(req.key, nodes)}
	result.proposal.Bound = req.proposal.Need // as far as the proposal knows
	req.proposal.Cluster = result.view
	return req, result
}

// makeProposal makes the proposal.
func (p *proposer) makeProposal(ctx context.Context, state fwk.CycleState, req *gangRequest, nodes []fwk.NodeInfo) *proposalResult {
	pods := make([]*v1.Pod, 0, len(req.pods))
	for _, pod := range req.pods {
		pods = append(pods, pod)
	}
	if shared := p.claims.among(pods); shared != "" {
		return &proposalResult{refusal: gang.Rollback{Cause: gang.CauseSharedClaim, Detail: shared}}
	}
	p.complete(ctx, state, req, nodes)
	result := &proposalResult{view: p.viewFor(req.key, nodes)}
	req.proposal.Cluster = result.view
	if len(req.knownNodes) >= req.proposal.Need && req.victimsGone(p.handle.SnapshotSharedLister().NodeInfos()) {
		result.proposal = req.proposeKnown(nodes)
		if len(result.proposal.Slots) >= req.proposal.Need {
			return result
		}
	}
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
	if result.proposal.Verdict == proposal.Refused {
		result.refusal = req.refusalOf(&result.proposal)
	}
	return result
}

// victimsGone reports whether the victims of the gang's preemption are gone from the cycle's nodes.
func (req *gangRequest) victimsGone(infos fwk.NodeInfoLister) bool {
	for uid, node := range req.victims {
		if info, err := infos.Get(node); err == nil && isOn(info, uid) {
			return false
		}
	}
	return true
}

// complete completes the request from the cycle's nodes.
func (p *proposer) complete(ctx context.Context, state fwk.CycleState, req *gangRequest, nodes []fwk.NodeInfo) {
	r := &req.proposal
	p.filters.learn(ctx, state, r.Classes, nodes)
	r.Filters = p.filters.Filters()
	r.SpreadKey, r.Start, r.Placed = spreadKey(r.Classes), p.start, map[string]int{}
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
		labels := info.Node().Labels
		r.Placed[labels[r.SpreadKey]]++
		if value, ok := labels[r.Topology.Key]; ok && r.Topology.Key != "" {
			r.Topology.Domain = value
		}
	}
}

// spreadKey returns the label whose domains take members in turn: that of their first hard spread constraint, or the zone.
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
func (p *proposer) viewFor(key types.NamespacedName, nodes []fwk.NodeInfo) *clusterView {
	return &clusterView{
		nodes: nodes, filters: p.filters, holds: p.holds,
		promised: p.gangs.promisedTo(key, p.handle, p.nominations.nodes()),
	}
}

// lackingResource describes the resource of which the cluster has too little for the PodGroup's minResources. What members already take
// counts as free.
func (p *proposer) lackingResource(req *gangRequest, v *clusterView) string {
	return proposal.Shortage(req.settings.minResources, v, func(names []v1.ResourceName, total []int64) {
		for _, info := range v.nodes {
			for _, podInfo := range info.GetPods() {
				if pod := podInfo.GetPod(); req.members[pod.UID] {
					proposal.Add(total, names, proposal.Requests(pod))
				}
			}
		}
	})
}

// proposeKnown returns a proposal of the nodes that the members were given before.
func (req *gangRequest) proposeKnown(nodes []fwk.NodeInfo) proposal.Result {
	at := make(map[string]int, len(req.knownNodes))
	for i, info := range nodes {
		at[info.Node().Name] = i
	}
	r := proposal.Result{Verdict: proposal.Proposed, Rings: make([][]int, len(req.proposal.Classes))}
	for c := range req.proposal.Classes {
		for _, uid := range req.proposal.Classes[c].Members {
			if i, there := at[req.knownNodes[uid]]; there {
				r.Slots = append(r.Slots, proposal.Slot{Member: uid, Class: c, At: i, Ring: len(r.Rings[c])})
				r.Rings[c] = append(r.Rings[c], i)
			}
		}
	}
	return r
}

// refusalOf describes a refusal: Detail has numbers of this moment, Reason has none.
func (req *gangRequest) refusalOf(r *proposal.Result) gang.Rollback {
	where, anywhere := "", ""
	if topology := req.proposal.Topology; topology.Required {
		anywhere = " in one " + topology.Key
		where = anywhere
		if r.Domain != "" {
			where = fmt.Sprintf(" in %s %s", topology.Key, r.Domain)
		}
	}
	reason := proposal.Short(r.Reasons)
	if reason == "" {
		reason = "there are no nodes"
	}
	return gang.Rollback{
		Cause:  gang.CauseNoRoom,
		Detail: fmt.Sprintf("needs %d%s, at most %d fit%s: %s", req.minMember, anywhere, req.minMember-req.proposal.Need+r.Bound, where, proposal.String(r.Reasons)),
		Reason: fmt.Sprintf("the cluster has no room for %d members at once%s: %s", req.minMember, anywhere, reason),
	}
}

// roundOf returns the round for a proposal.
func (req *gangRequest) roundOf(result *proposalResult) gang.Round {
	r := gang.Round{Hinted: result.proposal.Verdict == proposal.Proposed}
	placed := map[types.UID]bool{}
	for _, slot := range result.proposal.Slots {
		placed[slot.Member] = true
	}
	for i := range req.proposal.Classes {
		first := true
		for _, uid := range req.proposal.Classes[i].Members {
			if r.Hinted && !placed[uid] {
				continue
			}
			r.Members = append(r.Members, uid)
			if first {
				r.First = append(r.First, uid)
				first = false
			}
		}
	}
	return r
}

// startPlan stores the proposed nodes for the round that has begun, and returns the members that are nominated to others.
func (e *gangEntry) startPlan(req *gangRequest, result *proposalResult) (astray []*v1.Pod) {
	e.plan = newRoundPlan(e.gang.RoundNumber())
	for _, ring := range result.proposal.Rings {
		names := make([]string, len(ring))
		for i, at := range ring {
			names[i] = result.view.Node(at).Name
		}
		e.plan.rings = append(e.plan.rings, names)
	}
	for _, slot := range result.proposal.Slots {
		if m := e.pods[slot.Member]; m != nil {
			e.plan.set(slot.Member, plannedNode{node: result.view.Node(slot.At).Name, class: slot.Class, ring: slot.Ring})
		}
	}
	for uid := range req.pods {
		m := e.pods[uid]
		switch {
		case m == nil || m.pod.Status.NominatedNodeName == "":
		case m.pod.Status.NominatedNodeName == e.plan.members[uid].node:
			e.plan.nominated = true
		default:
			astray = append(astray, m.pod)
		}
	}
	e.confined = domain{}
	if result.proposal.Domain != "" {
		e.confined = domain{req.proposal.Topology.Key, result.proposal.Domain}
	}
	return astray
}
