package workload

import "math"

// claim is a group of equal pods for the purpose of sizing.
type claim struct {
	each       Resources
	replicas   int
	maxPerNode int // 0: no limit
}

// Slack for each pool of each zone: a share, and at least a few nodes, because pods do not fill nodes as well as their
// shares of nodes add up, and large instances need empty nodes.
const (
	slack      = 0.25
	slackNodes = 8
)

// zoneNodes returns the nodes of one zone. Each pod takes its share of a node of its pool; with these the claims fit
// while one zone is lost. Where a pod can go is left to the scheduler.
func zoneNodes(pools [2]pool, zones int, claims []claim) []Shape {
	var nodes []Shape
	for home, p := range pools {
		needed := 0.0
		for _, c := range claims {
			if poolIndex(c.each) == home {
				needed += float64(c.replicas) / float64(zones-1) / p.meanPodsPerNode(c)
			}
		}
		nodes = append(nodes, p.nodeMix(int(math.Ceil(needed+max(slackNodes, slack*needed))))...)
	}
	return nodes
}

// meanPodsPerNode returns how many pods of a claim a node of the pool holds in the mean.
func (p pool) meanPodsPerNode(c claim) float64 {
	pods, nodes := 0, 0
	for _, s := range p {
		fit := s.Capacity.countOf(c.each)
		if c.maxPerNode > 0 {
			fit = min(fit, c.maxPerNode)
		}
		pods += s.count * fit
		nodes += s.count
	}
	return float64(pods) / float64(nodes)
}
