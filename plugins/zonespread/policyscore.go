package zonespread

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// policyScores are the scores by a pod's policies. A pod without policies has none.
type policyScores []zoneScores

// zoneScores are the scores by one policy, from 0 to fwk.MaxNodeScore.
type zoneScores struct {
	topologyKey string
	byZone      map[string]int64 // of the nodes that passed all filters
}

// scoresByPolicies returns the scores of the nodes that passed all filters.
func (pl *ZoneSpread) scoresByPolicies(cycleState fwk.CycleState, filteredNodes []fwk.NodeInfo) policyScores {
	policies := policiesOf(cycleState)
	if policies == nil {
		return nil
	}
	all := make(policyScores, len(policies.each))
	for i, p := range policies.each {
		byZone := map[string]int64{}
		var zones []string
		inUse, everywhere := p.zones.Existing.Everywhere()
		for _, info := range filteredNodes {
			if everywhere && len(zones) == inUse {
				break // the others are in the same zones
			}
			zone, ok := info.Node().Labels[p.TopologyKey()]
			if _, known := byZone[zone]; ok && !known {
				byZone[zone] = 0
				zones = append(zones, zone)
			}
		}
		for n, score := range p.table.Scores(zones) {
			byZone[zones[n]] = score
		}
		all[i] = zoneScores{p.TopologyKey(), byZone}
	}
	return all
}

// scoreOf returns the score of a node, the mean over the policies. It is 0 from one whose topology key the node lacks.
func (p policyScores) scoreOf(node *v1.Node) int64 {
	sum := int64(0)
	for i := range p {
		if zone, ok := node.Labels[p[i].topologyKey]; ok {
			sum += p[i].byZone[zone]
		}
	}
	return sum / max(1, int64(len(p)))
}

// policyShare is the weight of policies beside soft constraints, out of 4. Policies decide about zones, and the
// constraints still distinguish the nodes of a zone (ADR 0008).
const policyShare = 3

// policyBits are those bits of a raw score that have the score by policies, since the framework takes one number per
// node from Score to NormalizeScore.
const policyBits = 7

// withPolicy makes a raw score of one by the constraints.
func withPolicy(raw, byPolicies int64) int64 { return raw<<policyBits | byPolicies }

// byConstraints is the part of a raw score that is by the constraints.
func byConstraints(raw int64) int64 { return raw >> policyBits }

// joinScores joins a normalized score by constraints, if there are any, with the one by policies that the raw score
// has.
func (p policyScores) joinScores(normalized, raw int64, constraints bool) int64 {
	byPolicies := raw & (1<<policyBits - 1)
	switch {
	case p == nil:
		return normalized
	case !constraints:
		return byPolicies
	}
	return (policyShare*byPolicies + (4-policyShare)*normalized) / 4
}
