package permitgate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// alternates is how many nodes a member is tried on besides its planned one.
const alternates = 15

// roundPlan is where a gang's round wants its members, as it was proposed. It keeps no room from other pods: only the proposals
// of other gangs leave that room out.
type roundPlan struct {
	round   int                       // which the plan is for
	members map[types.UID]plannedNode // those that have not found a node
	byNode  map[string][]types.UID    // the same
	rings   [][]string                // by class, the nodes that its members may be tried on
	// nominated is true if members were nominated in the API when the round began.
	nominated bool
}

// plannedNode is the node that is planned for a member; ring is the place in the ring of its class from where it takes its alternates.
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
	if own.class >= len(p.rings) {
		return nodes
	}
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

// recordPlaced records where a member went. If it took the node of another of its class, that one gets the node that it has left.
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

// siblingsOn returns the members without a node but one, with the nodes among some (nil means all) to which they are nominated in the API.
func (e *gangEntry) siblingsOn(nodes []string, but types.UID) (siblings []nomination) {
	if !e.plan.nominated {
		return nil
	}
	for uid := range e.plan.members {
		if m := e.pods[uid]; m != nil && uid != but {
			if node := m.pod.Status.NominatedNodeName; node != "" && (nodes == nil || slices.Contains(nodes, node)) {
				siblings = append(siblings, nomination{m.pod, node})
			}
		}
	}
	return siblings
}

// nomination is a pod and the node that it is to be nominated to.
type nomination struct {
	pod  *v1.Pod
	node string
}
