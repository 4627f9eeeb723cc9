package workload

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// claim is a group of equal pods for the purpose of sizing.
type claim struct {
	each       Resources
	replicas   int
	maxPerNode int
	spread     bool // hard, maxSkew 1, over the zones
	home       pool // the pool that grows when the claim does not fit
}

// fit simulates the placement of the claims over zones of the given nodes, then
// the loss of the last zone, and returns how many pods of each pool found no
// node. Like the real scheduler it prefers the least allocated node; otherwise
// it is not a model of the scheduler.
type fit struct {
	nodes  []fitNode
	claims []claim
	zones  int
	counts [][]int // claim -> zone -> pods
}

type fitNode struct {
	zone      int
	gpu       bool
	gone      bool
	capacity  Resources
	free      Resources
	pods      []int       // claims, one entry per pod
	perClaim  map[int]int // pods of one claim
	slotsLeft int
}

func newFit(shapes []shape, sizes poolSizes, zones int, claims []claim) *fit {
	f := &fit{claims: claims, zones: zones, counts: make([][]int, len(claims))}
	for i := range f.counts {
		f.counts[i] = make([]int, zones)
	}
	for p := range pools {
		for i, n := range mix(shapes, p, sizes[p]) {
			for range n {
				for zone := range zones {
					f.nodes = append(f.nodes, fitNode{
						zone: zone, gpu: shapes[i].pool == gpuNodes,
						capacity: shapes[i].each, free: shapes[i].each,
						perClaim: map[int]int{}, slotsLeft: podsPerNode,
					})
				}
			}
		}
	}
	return f
}

// run returns the pods without a node, by their home pool.
func (f *fit) run() (missing poolSizes) {
	for c := range f.claims {
		for range f.claims[c].replicas {
			if !f.place(c) {
				missing[f.claims[c].home]++
			}
		}
	}
	lost := f.zones - 1
	for i := range f.nodes {
		f.nodes[i].gone = f.nodes[i].zone == lost
	}
	// The largest come last, when the others have left the least room: in which order a scheduler has them depends on when
	// each is evicted.
	var displaced []int
	for i := range f.nodes {
		if f.nodes[i].gone {
			displaced = append(displaced, f.nodes[i].pods...)
		}
	}
	slices.SortStableFunc(displaced, func(a, b int) int { return cmp.Compare(f.claims[a].each.MemoryMiB, f.claims[b].each.MemoryMiB) })
	for _, c := range displaced {
		f.counts[c][lost]--
		if !f.place(c) {
			missing[f.claims[c].home]++
		}
	}
	return missing
}

func (f *fit) place(c int) bool {
	want := f.claims[c]
	lowest := math.MaxInt
	for zone, n := range f.counts[c] {
		if f.zoneStands(zone) {
			lowest = min(lowest, n)
		}
	}
	best, bestUse := -1, math.Inf(1)
	for i := range f.nodes {
		n := &f.nodes[i]
		if n.gone || n.slotsLeft == 0 || (n.gpu && want.each.GPU == 0) || !n.free.holds(want.each) ||
			(want.maxPerNode > 0 && n.perClaim[c] >= want.maxPerNode) ||
			(want.spread && f.counts[c][n.zone] > lowest) {
			continue
		}
		after := n.free.add(want.each, -1)
		use := 2 - float64(after.MilliCPU)/float64(n.capacity.MilliCPU) - float64(after.MemoryMiB)/float64(n.capacity.MemoryMiB)
		if use < bestUse {
			best, bestUse = i, use
		}
	}
	if best < 0 {
		return false
	}
	n := &f.nodes[best]
	n.free = n.free.add(want.each, -1)
	n.slotsLeft--
	if want.maxPerNode > 0 {
		n.perClaim[c]++
	}
	n.pods = append(n.pods, c)
	f.counts[c][n.zone]++
	return true
}

func (f *fit) zoneStands(zone int) bool {
	return zone != f.zones-1 || !f.nodes[zone].gone // nodes are dealt zone by zone
}

// Slack for each pool of each zone once the workload fits: a share, and at least
// a few nodes, because the real scheduler places differently and large instances
// need empty nodes.
const (
	slack      = 0.1
	slackNodes = 8
)

// sizePools finds, by growing the pools that are short, the nodes per zone at
// which the claims fit with one zone lost, and adds the slack.
func sizePools(shapes []shape, zones int, claims []claim) (poolSizes, error) {
	sizes := lowerBound(shapes, zones, claims)
	for sizes.total()*zones <= maxNodes {
		missing := newFit(shapes, sizes, zones, claims).run()
		if missing.total() == 0 {
			for p := range sizes {
				sizes[p] += max(slackNodes, int(math.Ceil(float64(sizes[p])*slack)))
			}
			return sizes, nil
		}
		for p, n := range missing {
			if n > 0 {
				sizes[p] += max(1, sizes[p]/50)
			}
		}
	}
	return poolSizes{}, fmt.Errorf("the workload needs more than %d nodes, which is what Kubernetes supports; choose a smaller scale", maxNodes)
}

// lowerBound returns the nodes per zone that the sums of CPUs and devices alone
// require once a zone is lost.
func lowerBound(shapes []shape, zones int, claims []claim) poolSizes {
	var asked, offered [pools]Resources
	var count poolSizes
	for _, c := range claims {
		asked[c.home] = asked[c.home].add(c.each, int64(c.replicas))
	}
	for _, s := range shapes {
		offered[s.pool] = offered[s.pool].add(s.each, int64(s.count))
		count[s.pool] += s.count
	}
	var sizes poolSizes
	for p := range sizes {
		nodes := 1.0
		if offered[p].MilliCPU > 0 {
			nodes = max(nodes, float64(asked[p].MilliCPU)/float64(offered[p].MilliCPU)*float64(count[p]))
		}
		if offered[p].GPU > 0 {
			nodes = max(nodes, float64(asked[p].GPU)/float64(offered[p].GPU)*float64(count[p]))
		}
		sizes[p] = int(math.Ceil(nodes / float64(zones-1)))
	}
	return sizes
}
