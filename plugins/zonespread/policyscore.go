package zonespread

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// policyScores has the scores by policies of the nodes that passed all filters.
type policyScores struct {
	names  []string
	scores []int64 // by the place of the name
}

// scoresByPolicies returns nil if the pod has no policies. It also records that the zones of the nodes have room.
func (pl *ZoneSpread) scoresByPolicies(cycleState fwk.CycleState, filteredNodes []fwk.NodeInfo) *policyScores {
	v := verdictsOf(cycleState)
	if v == nil {
		return nil
	}
	nodes := make([]*v1.Node, len(filteredNodes))
	names := make([]string, len(filteredNodes))
	for i := range filteredNodes {
		nodes[i] = filteredNodes[i].Node()
		names[i] = nodes[i].Name
	}
	scores := make([]int64, len(nodes))
	for i := range v.rows {
		r := &v.rows[i]
		zones := r.zonesOf(nodes)
		if r.answer.Refusing && !cycleState.IsPodGroupSchedulingCycle() {
			pl.shared.policies.Took(r.applied, v.requests, zones.names...)
		}
		byZone := r.table.Scores(zones.names)
		for n, zone := range zones.of {
			if zone >= 0 {
				scores[n] += byZone[zone]
			}
		}
	}
	for n := range scores {
		scores[n] /= int64(len(v.rows)) // 0 from a policy whose topology key the node lacks
	}
	return &policyScores{names: names, scores: scores}
}

// nodeZones are the zones of some nodes, numbered.
type nodeZones struct {
	names []string
	of    []int // by node: the number of its zone, -1 without one
}

// zonesOf numbers the zones of nodes. They are few in most clusters, where comparing them all is faster than a map.
func (r *row) zonesOf(nodes []*v1.Node) nodeZones {
	const few = 8
	z := nodeZones{of: make([]int, len(nodes))}
	var index map[string]int // once they are many
	for n, node := range nodes {
		z.of[n] = -1
		zone, ok := node.Labels[r.applied.TopologyKey()]
		if !ok {
			continue
		}
		at := -1
		if index == nil {
			at = slices.Index(z.names, zone)
		} else if known, ok := index[zone]; ok {
			at = known
		}
		if at < 0 {
			at = len(z.names)
			z.names = append(z.names, zone)
			if len(z.names) == few {
				index = make(map[string]int, 2*few)
				for i, name := range z.names {
					index[name] = i
				}
			} else if index != nil {
				index[zone] = at
			}
		}
		z.of[n] = at
	}
	return z
}

// of returns the score of a node; 0 for one that did not pass. guess is the node's likely
// place: the framework normalizes scores in the order of the nodes.
func (p *policyScores) of(name string, guess int) int64 {
	if guess >= len(p.names) || p.names[guess] != name {
		if guess = slices.Index(p.names, name); guess < 0 {
			return 0
		}
	}
	return p.scores[guess]
}

// policyShare is the weight of policies beside soft constraints, out of 4. Policies decide about zones, and the constraints
// still distinguish the nodes of a zone (ADR 0009).
const policyShare = 3

// addPolicies adds the share of policies to the normalized scores, or replaces these if there are no soft constraints.
func (s *preScoreState) addPolicies(scores fwk.NodeScoreList) {
	if s.byPolicies == nil {
		return
	}
	for i := range scores {
		score := s.byPolicies.of(scores[i].Name, i)
		if len(s.constraints) > 0 {
			score = (policyShare*score + (4-policyShare)*scores[i].Score) / 4
		}
		scores[i].Score = score
	}
}
