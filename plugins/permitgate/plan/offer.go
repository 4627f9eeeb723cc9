package plan

import (
	"cmp"
	"slices"
)

// offer is what has to go from a node for one more member of a class.
type offer struct {
	known, possible bool
	version         int
	cost            cost
	// fit is how many members the node takes then, at most as many as are wanted.
	fit     int
	victims []int32
}

// compare orders offers, the one to be preferred first. What many members have in return counts for each of them less.
func (o *offer) compare(other *offer, want int) int {
	if o.cost.pods == 0 || other.cost.pods == 0 {
		return cmp.Compare(o.cost.pods, other.cost.pods)
	}
	a, b := min(o.fit, want), min(other.fit, want)
	return cmp.Or(
		cmp.Compare(o.cost.violations*b, other.cost.violations*a),
		cmp.Compare(o.cost.highest, other.cost.highest),
		cmp.Compare(o.cost.pods*b, other.cost.pods*a),
		cmp.Compare(o.cost.sum*int64(b), other.cost.sum*int64(a)),
	)
}

// offer returns what has to go from a node for one more member of a class.
func (c *clearing) offer(index, node int) *offer {
	o := &c.offers[index][node]
	if !o.known || o.version != c.version && o.cost.pods > 0 {
		*o = c.ask(c.p.classes[index], node)
		o.known, o.version = true, c.version
	}
	return o
}

// item is a candidate, or what is left of a company, as a node offers it.
type item struct {
	id      int32 // the candidate, or the first of the company's on this node
	company int32 // -1 for a single candidate
	against bool  // a budget
}

// ask lets all candidates of a node go and then spares those that need not, the most important first, and those
// before all others whose budgets do not allow it.
func (c *clearing) ask(class *class, node int) offer {
	k := len(class.request)
	free := c.free[node*k:][:k]
	must := c.blocking(class, node)
	if fit := capacity(free, class.request); fit > 0 && len(must) == 0 {
		return offer{possible: true, fit: fit}
	}
	copy(c.avail, free)
	items := c.items(node)
	for _, it := range items {
		c.swing(&it, node, 1)
	}
	if capacity(c.avail, class.request) == 0 || !c.offered(items, must) {
		return offer{}
	}
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(boolOrder(b.against, a.against), cmp.Compare(c.priority(&b), c.priority(&a)), cmp.Compare(b.company, -1)-cmp.Compare(a.company, -1))
	})
	var gone []item
	for _, it := range items {
		if c.holds(&it, must) {
			gone = append(gone, it)
			continue
		}
		c.swing(&it, node, -1)
		if it.company < 0 && c.belongs(gone, it.id) || capacity(c.avail, class.request) == 0 {
			c.swing(&it, node, 1)
			gone = append(gone, it)
		}
	}
	o := offer{possible: true, fit: capacity(c.avail, class.request)}
	for _, it := range gone {
		if it.company < 0 {
			if !c.belongs(gone, it.id) {
				o.victims = append(o.victims, it.id)
			}
			continue
		}
		for _, id := range c.x.companies[it.company].members {
			if !c.out[id] {
				o.victims = append(o.victims, id)
			}
		}
	}
	o.cost = c.price(o.victims)
	return o
}

// belongs reports whether a candidate is of a company that goes as a whole.
func (c *clearing) belongs(gone []item, id int32) bool {
	co := c.x.candidates[id].company
	return co >= 0 && slices.ContainsFunc(gone, func(it item) bool { return it.company == co })
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// items lists what may go from a node, the most important first. Of a company the least important ones go
// singly, as many as may, and the others with all that is left of it.
func (c *clearing) items(node int) []item {
	var items []item
	ids := c.x.byNode[node]
	for _, id := range ids {
		if co := c.x.candidates[id].company; co >= 0 && !c.out[id] {
			c.scratch[co]++
		}
	}
	for _, id := range ids {
		if c.out[id] {
			continue
		}
		co := c.x.candidates[id].company
		if co < 0 {
			items = append(items, item{id: id, company: -1})
			continue
		}
		// scratch is how many of the company are still to come.
		switch {
		case c.scratch[co] <= c.spare[co]:
			items = append(items, item{id: id, company: -1})
		case c.x.companies[co].Whole && !slices.ContainsFunc(items, func(it item) bool { return it.company == co }):
			items = append(items, item{id: id, company: co})
		}
		c.scratch[co]--
	}
	c.judge(items)
	return items
}

// judge tells which items go against a budget when those before them have used it.
func (c *clearing) judge(items []item) {
	var left []int32
	use := func(id int32) bool {
		ids := c.x.candidates[id].budgets
		if len(ids) == 0 || c.out[id] {
			return false
		}
		if left == nil {
			left = slices.Clone(c.left)
		}
		return draw(left, ids)
	}
	for i := range items {
		it := &items[i]
		if it.company < 0 {
			it.against = use(it.id)
			continue
		}
		for _, id := range c.x.companies[it.company].members {
			if use(id) {
				it.against = true
			}
		}
	}
}

// priority returns the highest of an item's.
func (c *clearing) priority(it *item) int32 {
	if it.company >= 0 {
		return c.x.companies[it.company].highest
	}
	return c.x.candidates[it.id].priority
}

// swing adds what an item gives on a node, or takes it away again. A company gives what those of its candidates do that
// do not go singly.
func (c *clearing) swing(it *item, node int, by int64) {
	if it.company < 0 {
		for j, gain := range c.x.candidates[it.id].Gain {
			c.avail[j] += by * gain
		}
		return
	}
	count := 0
	ids := c.x.byNode[node]
	for _, id := range ids {
		if c.x.candidates[id].company == it.company && !c.out[id] {
			count++
		}
	}
	for _, id := range ids {
		one := &c.x.candidates[id]
		if one.company != it.company || c.out[id] {
			continue
		}
		if count > c.spare[it.company] {
			for j, gain := range one.Gain {
				c.avail[j] += by * gain
			}
		}
		count--
	}
}

// price returns the cost of further victims.
func (c *clearing) price(victims []int32) cost {
	var total cost
	var left []int32
	for i, v := range victims {
		one := &c.x.candidates[v]
		if i == 0 {
			total.highest = one.priority
		}
		total.highest = max(total.highest, one.priority)
		total.pods++
		total.sum += int64(one.priority)
		if len(one.budgets) > 0 {
			if left == nil {
				left = slices.Clone(c.left)
			}
			if draw(left, one.budgets) {
				total.violations++
			}
		}
	}
	return total
}

// capacity returns how many pods of a size there is room for.
func capacity(free, request []int64) int {
	fit := int64(-1)
	for j, r := range request {
		if r > 0 {
			n := max(0, free[j]) / r
			if fit < 0 || n < fit {
				fit = n
			}
		}
	}
	return int(max(0, fit))
}
