package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// maxOpenings is how many nodes are asked at least whether they open, for one class.
const maxOpenings = 100

// open makes nodes possible that pods on them close to a class, at the price of these pods, and returns the members
// with exclusions that end with them; nil when no node opens. Nodes are asked in the order of their names, those only
// that have room for a member when all of their candidates are gone.
func (p *planner) open(x *exchange, r *Preemption) []Member {
	excluded := map[types.UID]*Exclusions{}
	opened := false
	for _, c := range p.classes {
		unless := Exclusions{}
		if c.excluded != nil {
			unless = *c.excluded
		}
		unless.Unless = map[string][]types.UID{}
		for node, pods := range r.Openings(c.pods[0], p.closed(x, c)) {
			ids := x.named(node, pods)
			if len(ids) == 0 {
				continue
			}
			if c.blockers == nil {
				c.blockers = map[int][]int32{}
			}
			c.static[node], c.blockers[node] = possible, ids
			unless.Unless[p.Cluster.Node(node).Name] = pods
			opened = true
		}
		if c.excluded == nil {
			continue
		}
		for _, pod := range c.pods {
			excluded[pod.UID] = &unless
		}
	}
	if !opened {
		return nil
	}
	members := slices.Clone(r.Members)
	for i := range members {
		if e := excluded[members[i].Pod.UID]; e != nil {
			members[i].Excluded = e
		}
	}
	return members
}

// closed lists nodes that pods on them may close to a class.
func (p *planner) closed(x *exchange, c *class) []int {
	k := len(p.names)
	most := max(maxOpenings, 2*p.Need)
	order := make([]int, p.n)
	for i, at := range p.byName {
		order[at] = i
	}
	var nodes []int
	avail := make([]int64, k)
	for _, i := range order {
		if len(x.byNode[i]) == 0 {
			continue
		}
		switch c.static[i] {
		case portTaken, excluded:
		case possible:
			if !p.shunned(c, i) {
				continue
			}
		case cordoned, tainted, mismatched, noTopologyKey:
			continue
		}
		copy(avail, p.free[i*k:][:k])
		for _, id := range x.byNode[i] {
			for j, gain := range x.candidates[id].Gain {
				avail[j] += gain
			}
		}
		if capacity(avail, c.request) == 0 {
			continue
		}
		if nodes = append(nodes, i); len(nodes) == most {
			break
		}
	}
	return nodes
}

// shunned reports whether a class keeps away, by its own anti-affinity, from pods that are there.
func (p *planner) shunned(c *class, node int) bool {
	return slices.ContainsFunc(c.terms, func(t int) bool {
		from := p.terms[t]
		d := from.domainOf[node]
		return from.anti && d >= 0 && from.company[d] > 0
	})
}

// named returns the candidates of a node with these UIDs; nil when one of them is none.
func (x *exchange) named(node int, pods []types.UID) []int32 {
	ids := make([]int32, 0, len(pods))
	for _, id := range x.byNode[node] {
		if slices.Contains(pods, x.candidates[id].Pod.UID) {
			ids = append(ids, id)
		}
	}
	if len(ids) != len(pods) {
		return nil
	}
	return ids
}

// blocks reports whether one of some victims has to go whatever room there is.
func blocks(victims []int32, blocking map[int32]bool) bool {
	return slices.ContainsFunc(victims, func(v int32) bool { return blocking[v] })
}

// blocking returns the candidates that close a node to a class and have not gone yet.
func (c *clearing) blocking(class *class, node int) []int32 {
	var still []int32
	for _, id := range class.blockers[node] {
		if !c.out[id] {
			still = append(still, id)
		}
	}
	return still
}

// holds reports whether an item has one of some candidates.
func (c *clearing) holds(it *item, ids []int32) bool {
	return slices.ContainsFunc(ids, func(id int32) bool {
		return it.id == id || it.company >= 0 && c.x.candidates[id].company == it.company
	})
}

// offered reports whether all of some candidates may go.
func (c *clearing) offered(items []item, ids []int32) bool {
	for _, id := range ids {
		if !slices.ContainsFunc(items, func(it item) bool { return c.holds(&it, []int32{id}) }) {
			return false
		}
	}
	return true
}

// allowsWithout is allows for when some candidates have gone.
func (c *clearing) allowsWithout(index, node int, victims []int32) bool {
	if c.blind || len(c.p.classes[index].blockers[node]) == 0 {
		return c.allows(index, node)
	}
	for _, v := range victims {
		c.countTerms(&c.x.candidates[v], -1)
	}
	allows := c.allows(index, node)
	for _, v := range victims {
		c.countTerms(&c.x.candidates[v], 1)
	}
	return allows
}

// countTerms takes a candidate out of what affinity terms have counted, or back in.
func (c *clearing) countTerms(one *candidate, by int32) {
	for t, from := range c.p.terms {
		d := from.domainOf[one.node]
		if d < 0 || !c.p.selectors[from.selector].matches(one.Pod) {
			continue
		}
		state := &c.terms[t]
		state.company[d] += by
		state.total += by
	}
}
