package counts

import (
	"maps"
	"math"
	"slices"
)

// Count answers queries about the snapshot of the last Update. The cost of one is the number of nodes that have
// matching pods and of the domains, not the number of pods; only a selector that is not being counted yet costs more,
// see the package documentation. parallel calls do(i) for all 0 <= i < n, at once if it can; it is used for eligible
// nodes that are not known yet, and may be nil.
func (ix *Index) Count(queries []Query, parallel func(n int, do func(i int))) []*Table {
	tables := make([]*Table, len(queries))
	for i := range queries {
		q := &queries[i]
		c := ix.classFor(q, parallel)
		pods := slices.Clone(c.emptyCounts)
		// The selector that selects nothing has no requirements and no text, like the one that selects all.
		if _, selectable := q.Selector.Requirements(); selectable {
			matching := ix.counterFor(q)
			for _, e := range matching.cells {
				if domain := c.domainOf[e.slot]; domain != none {
					pods[domain] += e.pods
				}
			}
			c.addGroups(pods, matching.groups, q.ExceptGroup)
		}
		tables[i] = ix.newTable(c.topology, pods)
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
			if domain := c.domainOf[e.slot]; domain != none && last[domain] != number {
				last[domain] = number
				pods[domain]++
			}
		}
	}
}

// newTable makes a table of the pods per domain of a topology.
func (ix *Index) newTable(t *topology, pods []int32) *Table {
	t.sharedIDs, t.sharedDomain = true, true
	table := newTable(t.key, t.ids, t.values, pods)
	table.slots, table.domain = ix.slotsByNode(), t.domain
	table.inUse, table.everywhere = t.inUse, t.all == len(ix.byName)
	return table
}

// classFor returns the eligible nodes of a query. The first time, that costs a look at every node.
func (ix *Index) classFor(q *Query, parallel func(n int, do func(i int))) *class {
	ix.clock++
	key, required := classKeyOf(q)
	if c, ok := ix.classes[key]; ok {
		c.used, c.topology.used = ix.clock, ix.clock
		return c
	}
	c := &class{
		key: key, topology: ix.topologyFor(q.TopologyKey),
		query: Query{RequiredKeys: required, Eligibility: q.Eligibility},
	}
	c.used, c.topology.used = ix.clock, ix.clock
	c.domainOf = slices.Repeat([]int32{none}, len(ix.slots))
	c.nodes = make([]int32, 0, len(c.topology.values))
	c.emptyCounts = make([]int32, 0, len(c.topology.values))
	if name, single := singleNode(q.Eligibility); single {
		// Each pod of a DaemonSet names a node of its own, so that no later pod would ask for this class.
		if s, ok := ix.byName[name]; ok {
			c.enterNode(s, ix.slots[s].node)
		}
	} else {
		ix.classesBuilt++
		ix.enterEligible(c, parallel)
		ix.classes[key] = c
	}
	ix.evictClasses()
	return c
}

// enterEligible enters all eligible nodes into a new class.
func (ix *Index) enterEligible(c *class, parallel func(n int, do func(i int))) {
	if parallel == nil {
		parallel = func(n int, do func(i int)) {
			for i := range n {
				do(i)
			}
		}
	}
	eligible := make([]bool, len(ix.slots))
	parallel(len(ix.slots), func(s int) {
		node := ix.slots[s].node
		eligible[s] = node != nil && c.query.eligible(node)
	})
	for s := range eligible {
		if eligible[s] {
			c.addEligible(int32(s)) //nolint:gosec // slots are int32
		}
	}
}

// evictClasses drops the classes and topologies that were used least recently, until the limits hold. The latest ones
// stay.
func (ix *Index) evictClasses() {
	bytes := 0
	for _, c := range ix.classes {
		bytes += c.bytes()
	}
	for len(ix.classes) > 1 && bytes > ix.limits.ClassBytes {
		key := leastRecent(ix.classes, func(c *class) uint64 { return c.used })
		bytes -= ix.classes[key].bytes()
		ix.classesEvicted++
		delete(ix.classes, key)
	}
	for len(ix.topologies) > max(1, ix.limits.Topologies) {
		key := leastRecent(ix.topologies, func(t *topology) uint64 { return t.used })
		delete(ix.topologies, key)
		maps.DeleteFunc(ix.classes, func(k classKey, _ *class) bool { return k.topology == key })
	}
}

func (ix *Index) topologyFor(key string) *topology {
	t, ok := ix.topologies[key]
	if !ok {
		t = newTopology(key)
		t.domain = slices.Repeat([]int32{none}, len(ix.slots))
		for s := range ix.slots {
			if node := ix.slots[s].node; node != nil {
				t.enterNode(int32(s), node) //nolint:gosec // slots are int32
			}
		}
		ix.topologies[key] = t
	}
	return t
}

// leastRecent returns what was used least recently.
func leastRecent[K comparable, V any](all map[K]V, use func(V) uint64) (key K) {
	least := uint64(math.MaxUint64)
	for k, v := range all {
		if n := use(v); n < least {
			key, least = k, n
		}
	}
	return key
}

// Stats tells what an Index holds and has done.
type Stats struct {
	Nodes, Pods, LabelSets int    // what is indexed; a label set is the pods of a namespace with equal labels
	Selectors, Cells       int    // what is counted, see Limits
	Topologies, Classes    int    // what is known of nodes, see Limits
	Refreshed              uint64 // nodes whose pods were compared, ever
	SelectorsBuilt         uint64 // selectors counted from the index's pods, ever
	SelectorsEvicted       uint64 // selectors dropped, ever
	ClassesBuilt           uint64 // sets of eligible nodes made by a look at every node, ever
	ClassesEvicted         uint64 // sets of eligible nodes dropped, ever
}

// Stats returns what the index holds now.
func (ix *Index) Stats() Stats {
	return Stats{
		Nodes: len(ix.byName), Pods: ix.labelSets.pods, LabelSets: ix.labelSets.count,
		Selectors: len(ix.counters.byKey), Cells: ix.counters.cells,
		Topologies: len(ix.topologies), Classes: len(ix.classes),
		Refreshed: ix.refreshed, SelectorsBuilt: ix.counters.built, SelectorsEvicted: ix.counters.evicted,
		ClassesBuilt: ix.classesBuilt, ClassesEvicted: ix.classesEvicted,
	}
}
