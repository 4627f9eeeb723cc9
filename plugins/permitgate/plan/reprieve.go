package plan

import "slices"

// reprieve spares victims without whom the members find nodes among those of the plan, the most important first.
func (c *clearing) reprieve() []int32 {
	p := c.p
	on := make([]bool, p.n)
	for _, nodes := range c.nodes {
		for _, i := range nodes {
			on[i] = true
		}
	}
	q := *p
	q.classes = make([]*class, len(p.classes))
	for i, from := range p.classes {
		narrow := *from
		narrow.static = slices.Clone(from.static)
		for node := range narrow.static {
			if !on[node] && narrow.static[node] == possible {
				narrow.static[node] = excluded
			}
		}
		q.classes[i] = &narrow
	}
	victims := slices.Clone(c.victims)
	blocking := map[int32]bool{}
	for i, nodes := range c.nodes {
		for _, node := range nodes {
			for _, id := range p.classes[i].blockers[node] {
				blocking[id] = true
			}
		}
	}
	for tries, unit := range c.x.units(victims) {
		if tries >= exactReprieves {
			break
		}
		if blocks(unit, blocking) {
			continue
		}
		fewer := slices.DeleteFunc(slices.Clone(victims), func(v int32) bool { return slices.Contains(unit, v) })
		if q.enough(c.x, fewer) {
			victims = fewer
		}
	}
	return victims
}

// enough reports whether the quorum finds nodes when the victims are gone.
func (p *planner) enough(x *exchange, victims []int32) bool {
	q := *p
	k := len(p.names)
	q.free = slices.Clone(p.free)
	if p.Rules != nil {
		q.Removed = x.removals(victims)
	}
	q.spread = make([]*spreadConstraint, len(p.spread))
	for s, from := range p.spread {
		fewer := *from
		fewer.counts = slices.Clone(from.counts)
		q.spread[s] = &fewer
	}
	q.terms = make([]*term, len(p.terms))
	for t, from := range p.terms {
		fewer := *from
		fewer.company = slices.Clone(from.company)
		q.terms[t] = &fewer
	}
	for _, v := range victims {
		c := &x.candidates[v]
		node := int(c.node)
		for _, t := range q.terms {
			if d := t.domainOf[node]; d >= 0 && p.selectors[t.selector].matches(c.Pod) {
				t.company[d]--
				t.total--
			}
		}
		for j, gain := range c.Gain {
			q.free[node*k+j] += gain
		}
		for _, s := range q.spread {
			if s.counted[node] && p.selectors[s.selector].matches(c.Pod) {
				s.counts[s.domainOf[node]]--
			}
		}
	}
	return q.search().placed >= q.Need
}
