package permitgate

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// nodesPerTry is how many nodes a member is tried on at first.
const nodesPerTry = 16

// roundPlan is where a gang's round wants its members, as it was proposed. It keeps no room from other pods: only the
// proposals of other gangs leave that room out.
type roundPlan struct {
	round int              // which the plan is for
	hints map[string]*hint // by the members' signatures; nil without a plan
	// tried are the members that these nodes have refused.
	tried map[types.UID]bool
	// cost is how long its members' scheduling cycles have taken, until they found a node or none.
	cost time.Duration
}

// hint is on which nodes to try members that ask for the same.
type hint struct {
	// nodes are the first members ones, one for each member that has none, and then some with room to spare, and those
	// that members have taken.
	nodes   []string
	members int
	promise promise // of each member
}

// recordPlaced records that a member has found a node.
func (p *roundPlan) recordPlaced(m *member, node string) {
	if h := p.hints[m.signature]; h != nil {
		if i := slices.Index(h.nodes, node); i >= 0 {
			h.nodes = append(slices.Delete(h.nodes, i, i+1), node)
		}
		h.members = max(0, h.members-1)
	}
}

// recordRefused records that the nodes on which a member was tried have refused it. Members like it are tried on others
// first.
func (p *roundPlan) recordRefused(m *member) {
	h := p.hints[m.signature]
	if h == nil || p.tried[m.pod.UID] {
		return
	}
	p.tried[m.pod.UID] = true
	n := min(nodesPerTry, h.members)
	h.nodes = slices.Concat(h.nodes[n:h.members], h.nodes[:n], h.nodes[h.members:])
}

// addCost adds what a member's cycle has taken.
func (p *roundPlan) addCost(a *attempt, now time.Time) {
	if a != nil {
		p.cost += now.Sub(a.began)
	}
}

// startPlan stores the proposed nodes for the round that has begun.
func (e *gangEntry) startPlan(req *gangRequest, result *proposalResult) {
	e.plan = roundPlan{round: e.gang.RoundNumber(), hints: map[string]*hint{}, tried: map[types.UID]bool{}}
	for c, proposed := range result.proposal.Hints {
		first := e.pods[req.proposal.Classes[c].Pod.UID]
		if first == nil {
			continue // it is gone, and the others are tried on all nodes
		}
		h := &hint{members: proposed.Members, promise: first.promise()}
		for _, at := range proposed.Nodes {
			h.nodes = append(h.nodes, result.view.Node(at).Name)
		}
		h.promise.pod = ""
		e.plan.hints[first.signature] = h
	}
	e.confined = domain{}
	if result.proposal.Domain != "" {
		e.confined = domain{req.proposal.Topology.Key, result.proposal.Domain}
	}
}
