package permitgate

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// alternates is how many nodes a member is tried on besides its planned one.
const alternates = 15

// roundPlan is where a gang's round wants its members, as it was proposed. It keeps no room from other pods: only the
// proposals of other gangs leave that room out.
type roundPlan struct {
	round   int                       // which the plan is for
	members map[types.UID]plannedNode // those that have not found a node
	byNode  map[string][]types.UID    // the same
	rings   [][]string                // by class, the nodes that its members may be tried on
	// nominated is true if members were nominated in the API when the round began.
	nominated bool
	// preempted is true if the round began on room that the gang had preempted.
	preempted bool
	// cost is how long its members' scheduling cycles have taken, until they found a node or none.
	cost time.Duration
}

// plannedNode is the node that is planned for a member; ring is the place in the ring of its class from where it takes
// its alternates.
type plannedNode struct {
	node        string
	class, ring int
}

func newRoundPlan(round int) roundPlan {
	return roundPlan{round: round, members: map[types.UID]plannedNode{}, byNode: map[string][]types.UID{}}
}

// nodesFor returns the nodes to try a member on; none if no node is planned for it.
func (p *roundPlan) nodesFor(uid types.UID) []string {
	own, planned := p.members[uid]
	if !planned {
		return nil
	}
	nodes := []string{own.node}
	ring := p.rings[own.class]
	for i := 1; i < len(ring) && len(nodes) <= alternates; i++ {
		if node := ring[(own.ring+i)%len(ring)]; node != own.node {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (p *roundPlan) set(uid types.UID, planned plannedNode) {
	p.members[uid] = planned
	p.byNode[planned.node] = append(p.byNode[planned.node], uid)
}

// remove drops a member's node.
func (p *roundPlan) remove(uid types.UID) {
	node := p.members[uid].node
	delete(p.members, uid)
	if others := slices.DeleteFunc(p.byNode[node], func(other types.UID) bool { return other == uid }); len(others) > 0 {
		p.byNode[node] = others
	} else {
		delete(p.byNode, node)
	}
}

// recordPlaced records where a member went. If it took the node of another of its class, that one gets the node that it
// has left.
func (p *roundPlan) recordPlaced(uid types.UID, node string) {
	own, planned := p.members[uid]
	if !planned {
		return
	}
	p.remove(uid)
	if own.node == node {
		return
	}
	for _, other := range p.byNode[node] {
		if p.members[other].class == own.class {
			p.remove(other)
			p.set(other, own)
			return
		}
	}
}

// addCost adds what a member's cycle has taken.
func (p *roundPlan) addCost(a *attempt, now time.Time) {
	if a != nil {
		p.cost += now.Sub(a.began)
	}
}

// siblingsOn returns the members without a node but one, with the nodes among some (nil means all) to which they are
// nominated, which the API may not show yet.
func (e *gangEntry) siblingsOn(nodes []string, but types.UID) (siblings []nomination) {
	if !e.plan.nominated {
		return nil
	}
	for uid, m := range e.pods { // also those whose planned nodes have refused them
		if uid != but && !e.gang.HasNode(uid) {
			if node := cmp.Or(e.keptNode(uid), m.pod.Status.NominatedNodeName); node != "" && (nodes == nil || slices.Contains(nodes, node)) {
				siblings = append(siblings, nomination{m.pod, node})
			}
		}
	}
	return siblings
}

// startPlan stores the proposed nodes for the round that has begun, and returns the members that are nominated to
// others.
func (e *gangEntry) startPlan(req *gangRequest, result *proposalResult) (astray []*v1.Pod) {
	e.plan = newRoundPlan(e.gang.RoundNumber())
	e.plan.preempted = e.preempting != nil && e.preempting.cleared
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
