package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// planner is what the attempts at one plan share.
type planner struct {
	Request
	n          int // nodes
	names      []v1.ResourceName
	free       []int64 // of node i: free[i*len(names):][:len(names)]
	most       []int64 // the most that one node has free, by name; at least 1
	byName     []int32 // place of each node in the order of names, for ties
	classes    []*class
	selectors  []*selector
	spread     []*spreadConstraint
	terms      []*term
	topologies map[string]topology
}

// Make finds a plan. It allocates what it needs anew and keeps nothing.
func Make(r Request) Result {
	best := newPlanner(r).search()
	result := Result{Slots: best.slots()}
	if best.placed < r.Need {
		result.Refusal = best.refusal()
	}
	return result
}

// newPlanner looks at members and cluster.
func newPlanner(r Request) *planner {
	p := &planner{Request: r, n: r.Cluster.Len(), topologies: map[string]topology{}}
	p.classify(r.Members)
	p.measure()
	p.countSelected()
	for i, c := range p.classes {
		p.judgeNodes(c)
		p.spreadOf(c)
		p.termsOf(i, c)
	}
	return p
}

// search tries the variants until one places the quorum, and returns it, or the one that places most.
func (p *planner) search() *attempt {
	var best *attempt
	for variant := range p.variants() {
		a := p.try(variant)
		if best == nil || a.placed > best.placed {
			best = a
		}
		if best.placed >= p.Need {
			break
		}
	}
	return best
}

// each runs do for every node.
func (p *planner) each(do func(i int)) {
	const chunk = 256
	pieces := (p.n + chunk - 1) / chunk
	piece := func(k int) {
		for i := k * chunk; i < min((k+1)*chunk, p.n); i++ {
			do(i)
		}
	}
	if p.Parallel != nil && pieces > 1 {
		p.Parallel(pieces, piece)
		return
	}
	for k := range pieces {
		piece(k)
	}
}

// measure reads what is free, for the resources that some member asks for, and the size of each class.
func (p *planner) measure() {
	requests := make([][]amount, len(p.classes))
	for i, c := range p.classes {
		requests[i] = requestsOf(c.pods[0])
		for _, a := range requests[i] {
			if !slices.Contains(p.names, a.Name) {
				p.names = append(p.names, a.Name)
			}
		}
	}
	slices.Sort(p.names)
	k := len(p.names)
	p.free = make([]int64, p.n*k)
	p.each(func(i int) { p.Cluster.Free(i, p.names, p.free[i*k:][:k]) })
	p.most = make([]int64, k)
	total := make([]float64, k)
	for j, free := range p.free {
		p.most[j%k] = max(p.most[j%k], free)
		total[j%k] += float64(max(free, 0))
	}
	for j := range p.most {
		p.most[j] = max(p.most[j], 1)
	}
	for i, c := range p.classes {
		c.request = make([]int64, k)
		for _, a := range requests[i] {
			j, _ := slices.BinarySearch(p.names, a.Name)
			c.request[j] = a.Value
			c.size = max(c.size, float64(a.Value)/max(total[j], 1))
		}
	}
	order := make([]int32, p.n)
	for i := range order {
		order[i] = int32(i) //nolint:gosec // nodes are counted in thousands
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Compare(p.Cluster.Node(int(a)).Name, p.Cluster.Node(int(b)).Name)
	})
	p.byName = make([]int32, p.n)
	for at, i := range order {
		p.byName[i] = int32(at) //nolint:gosec // as above
	}
}
