package workload

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// maxNodes is the limit of Kubernetes.
const maxNodes = 5000

var errTooManyNodes = fmt.Errorf("the workload needs more than %d nodes, which is what Kubernetes supports; choose a smaller scale", maxNodes)

// claim is a group of equal pods for the purpose of sizing.
type claim struct {
	each       Resources
	replicas   int
	maxPerNode int  // 0: no limit
	spread     bool // hard, maxSkew 1, over the zones
}

// host is a node on which claims are placed.
type host struct {
	Shape
	zone   int
	free   Resources
	claims []int // one entry for each pod
}

// placement places claims over zones of equal nodes. Like the real scheduler it prefers the least allocated node; otherwise it
// is not a model of the scheduler.
type placement struct {
	hosts  []*host
	claims []claim
	counts [][]int // claim -> zone -> pods
	zones  int     // those that are not lost
}

// missing places the claims, then loses the last zone and places its pods again. It returns how many pods find no node, by the
// pool that they need.
func missing(nodes []Shape, zones int, claims []claim) (missing [2]int) {
	p := &placement{claims: claims, zones: zones}
	for zone := range zones {
		for _, s := range nodes {
			p.hosts = append(p.hosts, &host{Shape: s, zone: zone, free: s.Capacity})
		}
	}
	var all []int
	for i, c := range claims {
		p.counts = append(p.counts, make([]int, zones))
		all = append(all, slices.Repeat([]int{i}, c.replicas)...)
	}
	place := func(pods []int) {
		for _, c := range pods {
			if !p.place(c) {
				missing[homeOf(claims[c].each)]++
			}
		}
	}
	place(all)
	left := len(nodes) * (zones - 1)
	var displaced []int
	for _, lost := range p.hosts[left:] {
		displaced = append(displaced, lost.claims...)
	}
	p.hosts, p.zones = p.hosts[:left], zones-1
	// The largest come last, when the others have left the least room: in which order a scheduler has them depends on when
	// each is evicted.
	slices.SortStableFunc(displaced, func(a, b int) int { return cmp.Compare(claims[a].each[Memory], claims[b].each[Memory]) })
	place(displaced)
	return missing
}

// place places a pod of a claim, if it can.
func (p *placement) place(c int) bool {
	want := p.claims[c]
	counts := p.counts[c][:p.zones]
	fewest := slices.Min(counts)
	var best *host
	bestUse := math.Inf(1)
	for _, h := range p.hosts {
		tainted := h.Capacity.HasGPU() && !want.each.HasGPU()
		uneven := want.spread && counts[h.zone] > fewest
		if tainted || uneven || !h.free.holds(want.each) || want.maxPerNode > 0 && h.has(c) >= want.maxPerNode {
			continue
		}
		free := h.free.add(want.each, -1)
		use := 2 - float64(free[CPU])/float64(h.Capacity[CPU]) - float64(free[Memory])/float64(h.Capacity[Memory])
		if use < bestUse {
			best, bestUse = h, use
		}
	}
	if best == nil {
		return false
	}
	best.free = best.free.add(want.each, -1)
	best.claims = append(best.claims, c)
	counts[best.zone]++
	return true
}

// has returns how many pods of a claim are on the node.
func (h *host) has(c int) int {
	n := 0
	for _, other := range h.claims {
		if other == c {
			n++
		}
	}
	return n
}

// Slack for each pool of each zone once the workload fits: a share, and at least a few nodes, because the real scheduler
// places differently and large instances need empty nodes.
const (
	slack      = 0.1
	slackNodes = 8
)

// sizes finds, by growing the pools that are short, the nodes of one zone at which the claims fit with one zone lost, and adds
// the slack.
func sizes(pools [2]pool, zones int, claims []claim) ([]Shape, error) {
	size := [2]int{1, 1}
	for zones*(size[0]+size[1]) <= maxNodes {
		short := missing(slices.Concat(pools[0].mix(size[0]), pools[1].mix(size[1])), zones, claims)
		if short == [2]int{} {
			for i := range size {
				size[i] += max(slackNodes, int(math.Ceil(float64(size[i])*slack)))
			}
			return slices.Concat(pools[0].mix(size[0]), pools[1].mix(size[1])), nil
		}
		for i, n := range short {
			size[i] += (n + growth - 1) / growth
		}
	}
	return nil, errTooManyNodes
}

// growth is how many pods without a node let a zone grow by one node: more than a node holds in each zone, so that the nodes
// do not become more than are needed.
const growth = 30
