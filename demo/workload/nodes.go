package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Assumptions about hardware that the node trace does not describe.
const (
	nodeDiskGiB   = 7680
	podsPerNode   = 110
	gpusPerCard   = 2
	percentOfCard = 100
)

// pool is one of the two kinds of nodes whose numbers are chosen separately, each with the trace's mix of shapes.
type pool int

const (
	cpuNodes pool = iota
	gpuNodes
	pools
)

// shape is a kind of node.
type shape struct {
	name  string
	model string // of the devices, "" for none
	each  Resources
	pool  pool
	count int // nodes of this shape in the trace
}

// Node is one node of the demo.
type Node struct {
	Name     string
	Zone     string
	Instance string // the shape's name
	Model    string // of the devices, "" for none
	// Shared nodes are only for the reserved service and batch work.
	Shared   bool
	Capacity Resources
}

// shapesOf turns the trace's lines into shapes, ordered by pool and then by
// how common they are.
func shapesOf(lines []nodeLine) []shape {
	shapes := make([]shape, 0, len(lines))
	for _, line := range lines {
		s := shape{model: line.model, each: line.each, count: line.nodes}
		s.each.DiskGiB = nodeDiskGiB
		s.each.RDMAPercent = percentOfCard * max(1, line.each.GPU/gpusPerCard)
		cores, gib := line.each.MilliCPU/1000, line.each.MemoryMiB/1024
		s.name = fmt.Sprintf("cpu-%dc-%dg", cores, gib)
		if line.each.GPU > 0 {
			s.pool = gpuNodes
			s.name = fmt.Sprintf("%s-%dx-%dc-%dg", strings.ToLower(line.model), line.each.GPU, cores, gib)
		}
		shapes = append(shapes, s)
	}
	slices.SortStableFunc(shapes, func(a, b shape) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(b.count, a.count))
	})
	return shapes
}

// poolSizes is the number of nodes of each pool in one zone.
type poolSizes [pools]int

func (p poolSizes) total() int {
	n := 0
	for _, size := range p {
		n += size
	}
	return n
}

// mix shares n nodes of a pool among its shapes in the trace's proportion, by
// the method of largest remainders; ties go to the more common shape.
func mix(shapes []shape, p pool, n int) []int {
	counts := make([]int, len(shapes))
	total := 0
	for _, s := range shapes {
		if s.pool == p {
			total += s.count
		}
	}
	if total == 0 {
		return counts
	}
	var order []int
	left := n
	for i, s := range shapes {
		if s.pool != p {
			continue
		}
		counts[i] = n * s.count / total
		left -= counts[i]
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(n*shapes[b].count%total, n*shapes[a].count%total)
	})
	for _, i := range order[:left] {
		counts[i]++
	}
	return counts
}

// nodesOf lays the pools out over the zones. Every zone gets the same shapes,
// which is what dealing each shape round-robin over the zones gives when its
// number is a multiple of theirs.
func nodesOf(shapes []shape, sizes poolSizes, zones []string) []Node {
	counts := make([]int, len(shapes))
	for p := range pools {
		for i, n := range mix(shapes, p, sizes[p]) {
			counts[i] += n
		}
	}
	var nodes []Node
	serial := map[string]int{}
	for i, s := range shapes {
		for range counts[i] {
			for _, zone := range zones {
				nodes = append(nodes, Node{
					Name:     fmt.Sprintf("%s-%s-%03d", zone, strings.Split(s.name, "-")[0], serial[zone]),
					Zone:     zone,
					Instance: s.name,
					Model:    s.model,
					Capacity: s.each,
				})
				serial[zone]++
			}
		}
	}
	return nodes
}
