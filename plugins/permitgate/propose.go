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

// plan is what a gang asks for: the input of a proposal besides the nodes.
type plan struct {
	key       types.NamespacedName
	request   proposal.Request
	pods      map[types.UID]*v1.Pod // the missing members
	minMember int
	priority  int32
	wants     wants
	// known are nodes that members were given before: by an earlier scheduler, or by a preemption whose victims may still be
	// there.
	known   map[types.UID]string
	victims map[types.UID]string
	// here are the nodes of bound members.
	here    []string
	members map[types.UID]bool // all of them
	// neverPreempts is true if a member must not preempt.
	neverPreempts bool
}

// outcome is the result of a proposal for the gang.
type outcome struct {
	result proposal.Result
	// refusal is why the gang is refused; its Cause is empty when it is not.
	refusal gang.Rollback
	view    *view
}

// propose makes the proposal for a gang whose scout is in its cycle.
func (p *proposer) propose(ctx context.Context, state fwk.CycleState, key types.NamespacedName, scout *v1.Pod, nodes []fwk.NodeInfo) (*plan, outcome) {
	began := p.gangs.clock.Now()
	pl := p.plan(key, scout)
	o := p.answer(ctx, state, pl, nodes)
	result := map[proposal.Verdict]string{
		proposal.Refused: "refused", proposal.Proposed: "proposed", proposal.Unproven: "unproven", proposal.Exhausted: "refused",
	}[o.result.Verdict]
	took := p.gangs.clock.Since(began)
	proposalDuration.WithLabelValues(result).Observe(took.Seconds())
	klog.FromContext(ctx).V(3).Info("Proposed for a gang", "podGroup", key, "result", result, "detail", o.refusal.Detail,
		"members", len(o.result.Slots), "domain", o.result.Domain, "nodes", o.result.Nodes, "took", took)
	return pl, o
}

// plan collects what the gang asks for. It uses the scout's pod of the cycle, as the first of its class.
func (p *proposer) plan(key types.NamespacedName, scout *v1.Pod) *plan {
	pl := &plan{key: key, pods: map[types.UID]*v1.Pod{}, known: map[types.UID]string{}, members: map[types.UID]bool{}}
	classes, refused := map[string][]*v1.Pod{}, map[types.UID]bool{} // by signature; those whose binds were refused
	p.gangs.read(key, func(e *entry) {
		var missing []types.UID
		missing, pl.request.Need = e.gang.Missing()
		pl.minMember, pl.priority, pl.wants = e.gang.MinMember(), e.lowest(), e.wants
		if e.preempting != nil {
			pl.victims = e.preempting.victims
		}
		pl.request.Topology = proposal.Topology{Key: e.wants.topology.Key, Required: e.wants.topology.Required, Tried: e.tried}
		pl.here = e.nodesInUse()
		for uid := range e.pods {
			pl.members[uid] = true
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
			pl.pods[uid], refused[uid] = pod, e.gang.BindRefused(uid)
			if node := e.knownNode(uid); node != "" {
				pl.known[uid] = node
			}
			if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever {
				pl.neverPreempts = true
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
		pl.request.Classes = append(pl.request.Classes, c)
	}
	return pl
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

// again returns what a gang asks for, and the nodes of the cycle, after a member has failed.
func (p *proposer) again(ctx context.Context, state fwk.CycleState, key types.NamespacedName, failed *v1.Pod) (*plan, outcome) {
	pl := p.plan(key, failed)
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil || len(nodes) == 0 {
		return pl, outcome{}
	}
	p.prepare(ctx, state, pl, nodes)
	o := outcome{view: p.view(pl.key, nodes)}
	o.result.Bound = pl.request.Need // as far as the proposal knows
	pl.request.Cluster = o.view
	return pl, o
}

// answer makes the proposal.
func (p *proposer) answer(ctx context.Context, state fwk.CycleState, pl *plan, nodes []fwk.NodeInfo) outcome {
	pods := make([]*v1.Pod, 0, len(pl.pods))
	for _, pod := range pl.pods {
		pods = append(pods, pod)
	}
	if words := p.claims.among(pods); words != "" {
		return outcome{refusal: gang.Rollback{Cause: gang.CauseSharedClaim, Detail: words}}
	}
	p.prepare(ctx, state, pl, nodes)
	o := outcome{view: p.view(pl.key, nodes)}
	pl.request.Cluster = o.view
	if len(pl.known) >= pl.request.Need && pl.cleared(p.handle.SnapshotSharedLister().NodeInfos()) {
		if o.result = pl.asKnown(nodes); len(o.result.Slots) >= pl.request.Need {
			return o
		}
	}
	if short := p.lacks(pl, o.view); short != "" {
		o.result = proposal.Result{Verdict: proposal.Refused, Bound: pl.request.Need - 1}
		o.refusal = gang.Rollback{
			Cause:  gang.CauseNoRoom,
			Detail: fmt.Sprintf("needs %d, and the cluster lacks spec.minResources: %s", pl.minMember, short),
			Reason: "the cluster lacks spec.minResources",
		}
		return o
	}
	o.result = proposal.Make(pl.request)
	if n := len(nodes); n > 0 {
		p.start = (p.start + o.result.Nodes) % n
	}
	if o.result.Verdict == proposal.Refused {
		o.refusal = pl.refusal(&o.result)
	}
	return o
}

// cleared reports whether the victims of the gang's preemption are gone from the cycle's nodes.
func (pl *plan) cleared(infos fwk.NodeInfoLister) bool {
	for uid, node := range pl.victims {
		if info, err := infos.Get(node); err == nil && isOn(info, uid) {
			return false
		}
	}
	return true
}

// prepare completes the request from the cycle's nodes.
func (p *proposer) prepare(ctx context.Context, state fwk.CycleState, pl *plan, nodes []fwk.NodeInfo) {
	r := &pl.request
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
	for _, name := range pl.here {
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

// view returns the nodes as a gang may use them.
func (p *proposer) view(key types.NamespacedName, nodes []fwk.NodeInfo) *view {
	return &view{
		nodes: nodes, filters: p.filters, holds: p.holds,
		promised: p.gangs.promisedTo(key, p.handle, p.nominations.nodes()),
	}
}

// lacks describes the resource of which the cluster has too little for the PodGroup's minResources. What members already take
// counts as free.
func (p *proposer) lacks(pl *plan, v *view) string {
	return proposal.Shortage(pl.wants.minResources, v, func(names []v1.ResourceName, total []int64) {
		for _, info := range v.nodes {
			for _, one := range info.GetPods() {
				if pod := one.GetPod(); pl.members[pod.UID] {
					proposal.Add(total, names, proposal.Requests(pod))
				}
			}
		}
	})
}

// asKnown returns a proposal of the nodes that the members were given before.
func (pl *plan) asKnown(nodes []fwk.NodeInfo) proposal.Result {
	at := make(map[string]int, len(pl.known))
	for i, info := range nodes {
		at[info.Node().Name] = i
	}
	r := proposal.Result{Verdict: proposal.Proposed, Rings: make([][]int, len(pl.request.Classes))}
	for c := range pl.request.Classes {
		for _, uid := range pl.request.Classes[c].Members {
			if i, there := at[pl.known[uid]]; there {
				r.Slots = append(r.Slots, proposal.Slot{Member: uid, Class: c, At: i, Ring: len(r.Rings[c])})
				r.Rings[c] = append(r.Rings[c], i)
			}
		}
	}
	return r
}

// refusal describes a refusal: Detail has numbers of this moment, Reason has none.
func (pl *plan) refusal(r *proposal.Result) gang.Rollback {
	where, one := "", ""
	if topology := pl.request.Topology; topology.Required {
		one = " in one " + topology.Key
		if where = one; r.Domain != "" {
			where = fmt.Sprintf(" in %s %s", topology.Key, r.Domain)
		}
	}
	reason := proposal.Short(r.Reasons)
	if reason == "" {
		reason = "there are no nodes"
	}
	return gang.Rollback{
		Cause:  gang.CauseNoRoom,
		Detail: fmt.Sprintf("needs %d%s, at most %d fit%s: %s", pl.minMember, one, pl.minMember-pl.request.Need+r.Bound, where, proposal.String(r.Reasons)),
		Reason: fmt.Sprintf("the cluster has no room for %d members at once%s: %s", pl.minMember, one, reason),
	}
}

// round returns the round for a proposal.
func (pl *plan) round(o *outcome) gang.Round {
	r := gang.Round{Hinted: o.result.Verdict == proposal.Proposed}
	placed := map[types.UID]bool{}
	for _, slot := range o.result.Slots {
		placed[slot.Member] = true
	}
	for i := range pl.request.Classes {
		first := true
		for _, uid := range pl.request.Classes[i].Members {
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

// follow stores the proposed nodes for the round that has begun, and returns the members that are nominated to others.
func (e *entry) follow(pl *plan, o *outcome) (astray []*v1.Pod) {
	e.plan = newRoundPlan(e.gang.Round())
	for _, ring := range o.result.Rings {
		names := make([]string, len(ring))
		for i, at := range ring {
			names[i] = o.view.Node(at).Name
		}
		e.plan.rings = append(e.plan.rings, names)
	}
	for _, slot := range o.result.Slots {
		if m := e.pods[slot.Member]; m != nil {
			e.plan.set(slot.Member, plannedNode{node: o.view.Node(slot.At).Name, class: slot.Class, ring: slot.Ring})
		}
	}
	for uid := range pl.pods {
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
	if o.result.Domain != "" {
		e.confined = domain{pl.request.Topology.Key, o.result.Domain}
	}
	return astray
}
