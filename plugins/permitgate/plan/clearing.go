package plan

import (
	"cmp"
	"slices"
)

// clearing is an attempt that removes candidates where members do not fit otherwise.
type clearing struct {
	*attempt
	x       *exchange
	victims []int32
	out     []bool  // by candidate
	spare   []int   // by company: how many may still go singly
	left    []int32 // by budget
	offers  [][]offer
	version int // of left; offers that were made before a budget was used up are stale
	scratch []int
	avail   []int64
	// blind tells that constraints have forgotten all candidates from the beginning.
	blind bool
}

// maxClearings bounds how many variants are tried for members that must be together.
const maxClearings = 20

// cheapest tries the variants, and returns the one that places the quorum with the cheapest victims, or, when none
// does, the one that places most. When blind, constraints count none of the candidates, for they may keep members out
// until they are gone; what comes of that has to be verified.
func (p *planner) cheapest(x *exchange, blind bool) *clearing {
	ranked := *p // domains are ranked by the room that there could be
	ranked.free = slices.Clone(p.free)
	k := len(p.names)
	for i := range x.candidates {
		c := &x.candidates[i]
		for j, gain := range c.Gain {
			ranked.free[int(c.node)*k+j] += gain
		}
	}
	together := slices.ContainsFunc(p.terms, func(t *term) bool { return !t.anti && t.total == 0 && t.self })
	var best *clearing
	tried := 0
	for v := range ranked.variants() {
		c := p.clear(v, x, blind)
		if best == nil || c.better(best) {
			best = c
		}
		tried++
		if best.placed >= p.Need && !together || tried >= maxClearings {
			break
		}
	}
	return best
}

func (c *clearing) better(than *clearing) bool {
	switch whole, other := c.placed >= c.p.Need, than.placed >= c.p.Need; {
	case whole != other:
		return whole
	case !whole:
		return c.placed > than.placed
	}
	return c.x.costOf(c.victims).compare(c.x.costOf(than.victims)) < 0
}

// clear places the quorum in one way.
func (p *planner) clear(v variant, x *exchange, blind bool) *clearing {
	c := &clearing{
		attempt: p.begin(v), x: x, out: make([]bool, len(x.candidates)), spare: make([]int, len(x.companies)),
		left: slices.Clone(x.budgets.allowed), offers: make([][]offer, len(p.classes)),
		scratch: make([]int, len(x.companies)), avail: make([]int64, len(p.names)), blind: blind,
	}
	if blind {
		for i := range x.candidates {
			c.forget(&x.candidates[i])
		}
	}
	for i, co := range x.companies {
		c.spare[i] = co.Spare
	}
	for i := range c.offers {
		c.offers[i] = make([]offer, p.n)
	}
	for progress := true; progress && c.placed < p.Need; {
		progress = false
		for _, i := range v.order {
			if c.settle(i) > 0 {
				progress = true
			}
		}
	}
	return c
}

// settle gives nodes to as many members of a class as it can, up to the quorum, and returns how many those are.
func (c *clearing) settle(index int) int {
	class := c.p.classes[index]
	nodes := c.ranking(index)
	plain := len(class.spread) == 0 && c.rules[index] == nil && len(class.ports) == 0 && len(c.p.terms) == 0
	done := 0
	for len(c.nodes[index]) < c.limit[index] && c.placed < c.p.Need {
		want := min(c.limit[index]-len(c.nodes[index]), c.p.Need-c.placed)
		best, bestLoad := -1, 0
		for _, i := range nodes {
			o := c.offer(index, i)
			if !o.possible {
				continue
			}
			order := -1
			if best >= 0 {
				order = o.compare(&c.offers[index][best], want)
			}
			if order > 0 || !plain && !c.allowsWithout(index, i, o.victims) {
				continue
			}
			load := c.load(class, i)
			if best < 0 || order < 0 || load < bestLoad {
				best, bestLoad = i, load
			}
			if plain && o.cost.pods == 0 {
				break // the first node with room is the best
			}
		}
		if best < 0 {
			break
		}
		c.remove(c.offers[index][best].victims)
		c.take(index, best)
		c.stale(best)
		done++
	}
	return done
}

// ranking lists the nodes that are possible for a class, those with the least to spare first.
func (c *clearing) ranking(index int) []int {
	class := c.p.classes[index]
	k := len(c.p.names)
	spare := make([]float64, c.p.n)
	var nodes []int
	for i, v := range class.static {
		if v != possible {
			continue
		}
		nodes = append(nodes, i)
		for j, free := range c.free[i*k:][:k] {
			spare[i] += float64(free-class.request[j]) / float64(c.p.most[j])
		}
	}
	slices.SortFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(spare[a], spare[b]), cmp.Compare(c.p.byName[a], c.p.byName[b]))
	})
	return nodes
}

// stale has a node asked again.
func (c *clearing) stale(node int) {
	for i := range c.offers {
		c.offers[i][node].known = false
	}
}

// remove makes candidates victims, with all that follows from it.
func (c *clearing) remove(ids []int32) {
	k := len(c.p.names)
	for _, id := range ids {
		one := &c.x.candidates[id]
		c.out[id] = true
		c.victims = append(c.victims, id)
		node := int(one.node)
		for j, gain := range one.Gain {
			c.free[node*k+j] += gain
		}
		c.stale(node)
		for _, b := range one.budgets {
			if c.left[b]--; c.left[b] == 0 {
				c.version++
			}
		}
		if co := one.company; co >= 0 {
			c.spare[co] = max(0, c.spare[co]-1)
			for _, other := range c.x.companies[co].members {
				c.stale(int(c.x.candidates[other].node))
			}
		}
		if !c.blind {
			c.forget(one)
			c.countTerms(one, -1)
		}
	}
}

// forget takes a victim out of what constraints have counted.
func (c *clearing) forget(one *candidate) {
	node := int(one.node)
	for s, from := range c.p.spread {
		if from.counted[node] && c.p.selectors[from.selector].matches(one.Pod) {
			c.spread[s][from.domainOf[node]]--
			c.least[s] = from.least(c.spread[s])
		}
	}
	for _, r := range c.rules {
		if r != nil {
			r.rules.Remove(one.Pod, c.p.Cluster.Node(node))
			r.fresh = false
		}
	}
}
