package counts

import "slices"

// Count answers queries about the snapshot of the last Update. The cost of one is the number of nodes
// that have matching pods and of the domains, not the number of pods; only a selector that is not being
// counted yet costs more, see the package documentation.
func (ix *Index) Count(queries []Query) []*Table {
	tables := make([]*Table, len(queries))
	for i := range queries {
		q := &queries[i]
		c := ix.class(q)
		pods := slices.Clone(c.blank)
		// The selector that selects nothing has no requirements and no text, like the one that selects all.
		if _, selectable := q.Selector.Requirements(); selectable {
			matching := ix.counter(q)
			for _, e := range matching.cells {
				if home := c.home[e.slot]; home != none {
					pods[home] += e.pods
				}
			}
			c.addGroups(pods, matching.groups, q.ExceptGroup)
		}
		tables[i] = ix.table(c.topology, pods)
	}
	return tables
}

// addGroups adds the number of groups in each domain, a group that is in several once to each.
func (c *class) addGroups(pods []int32, groups map[string]*cells, except string) {
	if len(groups) == 0 {
		return
	}
	last := make([]int, len(pods)) // the number of the last group that was counted in a domain
	number := 0
	for value, list := range groups {
		if value == except {
			continue
		}
		number++
		for _, e := range *list {
			if home := c.home[e.slot]; home != none && last[home] != number {
				last[home] = number
				pods[home]++
			}
		}
	}
}

// table makes a table of the pods per domain of a topology.
func (ix *Index) table(t *topology, pods []int32) *Table {
	ids, domain := t.share()
	table := newTable(t.key, ids, pods)
	table.slots, table.domain = ix.slotsByNode(), domain
	table.values, table.everywhere = t.inUse, t.all == len(ix.byName)
	return table
}

// class returns the eligible nodes of a query. The first time, that costs a look at every node.
func (ix *Index) class(q *Query) *class {
	ix.clock++
	key, required := keyOf(q)
	c, ok := ix.classes[key]
	if !ok {
		c = &class{key: key, topology: ix.topology(q.TopologyKey), required: required, eligibility: q.Eligibility}
		c.home = make([]int32, len(ix.slots))
		for s := range ix.slots {
			c.home[s] = none
			if node := ix.slots[s].node; node != nil {
				c.enter(int32(s), node) //nolint:gosec // slots are int32
			}
		}
		ix.classes[key] = c
	}
	c.used, c.topology.used = ix.clock, ix.clock
	for len(ix.classes) > ix.limits.Classes && ix.dropOldestClass(c) {
	}
	for len(ix.topologies) > ix.limits.Topologies && ix.dropOldestTopology(c.topology) {
	}
	return c
}

func (ix *Index) topology(key string) *topology {
	t, ok := ix.topologies[key]
	if !ok {
		t = newTopology(key)
		t.domain = make([]int32, len(ix.slots))
		for s := range ix.slots {
			t.domain[s] = none
			if node := ix.slots[s].node; node != nil {
				t.enter(int32(s), node) //nolint:gosec // slots are int32
			}
		}
		ix.topologies[key] = t
	}
	return t
}

// dropOldestClass drops the class that was used least recently, unless that is the one in use.
func (ix *Index) dropOldestClass(inUse *class) bool {
	oldest := inUse
	for _, c := range ix.classes {
		if c.used < oldest.used {
			oldest = c
		}
	}
	if oldest == inUse {
		return false
	}
	delete(ix.classes, oldest.key)
	return true
}

// dropOldestTopology drops the topology that was used least recently, with the classes over it, unless
// that is the one in use.
func (ix *Index) dropOldestTopology(inUse *topology) bool {
	oldest := inUse
	for _, t := range ix.topologies {
		if t.used < oldest.used {
			oldest = t
		}
	}
	if oldest == inUse {
		return false
	}
	delete(ix.topologies, oldest.key)
	for key, c := range ix.classes {
		if c.topology == oldest {
			delete(ix.classes, key)
		}
	}
	return true
}

// Stats tells what an Index holds and has done.
type Stats struct {
	Nodes, Pods, Shapes int    // what is indexed; a shape is the pods of a namespace with equal labels
	Selectors, Cells    int    // what is counted, see Limits
	Topologies, Classes int    // what is known of nodes, see Limits
	Refreshed           uint64 // nodes whose pods were compared, ever
	SelectorsBuilt      uint64 // selectors counted from the index's pods, ever
	SelectorsEvicted    uint64 // selectors dropped, ever
}

// Stats returns what the index holds now.
func (ix *Index) Stats() Stats {
	return Stats{
		Nodes: len(ix.byName), Pods: ix.shapes.pods, Shapes: ix.shapes.count,
		Selectors: len(ix.counters.byKey), Cells: ix.counters.cells,
		Topologies: len(ix.topologies), Classes: len(ix.classes),
		Refreshed: ix.refreshed, SelectorsBuilt: ix.counters.built, SelectorsEvicted: ix.counters.evicted,
	}
}
