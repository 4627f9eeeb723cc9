package counts

import (
	"cmp"
	"container/list"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// counter keeps, for one selector in one namespace, the matching pods per node.
type counter struct {
	key      counterKey
	selector labels.Selector
	cells    cells // the pods that count one by one
	// groups are the pods that have a value of the label groupBy, by that value.
	groups map[string]*cells
	owner  *counters
	// lookup are the labels under which pods find the counter: a pod that matches has exactly one of
	// them. Without any, all pods of the namespace try it.
	lookup  []label
	used    uint64 // the owner's clock at the last use
	recency *list.Element
}

type counterKey struct{ namespace, selector, groupBy string }

func (c *counter) matches(podLabels map[string]string) bool {
	return c.selector.Matches(labels.Set(podLabels))
}

// addPods counts pods of a label set onto a node or off it.
func (c *counter) addPods(set *labelSet, slot, pods int32) {
	list := &c.cells
	value, grouped := c.groupOf(set)
	if grouped {
		list = c.groups[value]
		if list == nil {
			list = &cells{}
			c.groups[value] = list
		}
	}
	before := len(*list)
	list.addPods(slot, pods)
	c.owner.cells += len(*list) - before
	if grouped && len(*list) == 0 {
		delete(c.groups, value)
	}
}

// groupOf returns the group that the pods of a label set belong to; false if they count one by one.
func (c *counter) groupOf(set *labelSet) (string, bool) {
	if c.groups == nil {
		return "", false
	}
	value := set.labels[c.key.groupBy]
	return value, value != ""
}

// cellCount is how many cells the counter has.
func (c *counter) cellCount() int {
	n := len(c.cells)
	for _, list := range c.groups {
		n += len(*list)
	}
	return n
}

// counters are the selectors that are being counted. The ones used least recently make room when there
// are too many of them, or of their cells, or when they have not been used for long.
type counters struct {
	byKey   map[counterKey]*counter
	recency *list.List // of *counter, the latest used first
	cells   int        // of all counters
	clock   uint64     // ticks with every use of any counter
	built   uint64
	evicted uint64
}

func newCounters() counters {
	return counters{byKey: map[counterKey]*counter{}, recency: list.New()}
}

// counterFor returns the counter for a query, whose selector must not be labels.Nothing. The first time, that costs as
// much as there are label sets with the selector's rarest label, and nodes with matching pods.
func (ix *Index) counterFor(q *Query) *counter {
	cs := &ix.counters
	cs.clock++
	key := counterKey{q.Namespace, q.Selector.String(), q.GroupBy}
	c, ok := cs.byKey[key]
	if !ok {
		c = &counter{key: key, selector: q.Selector, owner: cs}
		if q.GroupBy != "" {
			c.groups = map[string]*cells{}
		}
		ix.buildCounter(c)
		cs.byKey[key] = c
		c.recency = cs.recency.PushFront(c)
		cs.built++
	} else {
		cs.recency.MoveToFront(c.recency)
	}
	c.used = cs.clock
	ix.evictCounters(c)
	return c
}

// buildCounter counts the matching pods and enters the counter where pods look for it.
func (ix *Index) buildCounter(c *counter) {
	ns := ix.labelSets.namespace(c.key.namespace)
	c.lookup = lookupLabels(ns, c.selector)
	var parts []cells
	grouped := map[string][]cells{}
	for _, index := range c.lookupIndexes(ns) {
		for _, entry := range index.entries {
			if !c.matches(entry.set.labels) {
				continue
			}
			entry.set.counters = append(entry.set.counters, c)
			if value, ok := c.groupOf(entry.set); ok {
				grouped[value] = append(grouped[value], entry.set.cells)
			} else {
				parts = append(parts, entry.set.cells)
			}
		}
		index.counters = append(index.counters, c)
	}
	scratch := ix.scratch[:len(ix.slots)]
	c.cells = sumCells(parts, scratch)
	for value, parts := range grouped {
		c.groups[value] = new(sumCells(parts, scratch))
	}
	c.owner.cells += c.cellCount()
}

// lookupIndexes returns where the counter is looked up.
func (c *counter) lookupIndexes(ns *namespace) []*labelIndex {
	if len(c.lookup) == 0 {
		return []*labelIndex{&ns.all}
	}
	indexes := make([]*labelIndex, len(c.lookup))
	for i, l := range c.lookup {
		indexes[i] = ns.indexOf(l)
	}
	return indexes
}

// lookupLabels picks, among the requirements that name the values of a label, the one that the fewest
// label sets and other selectors share.
func lookupLabels(ns *namespace, selector labels.Selector) []label {
	requirements, _ := selector.Requirements()
	var best []label
	bestCost := 0
	for i := range requirements {
		r := &requirements[i]
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
		default:
			continue
		}
		cost := 0
		var candidate []label
		for _, value := range r.ValuesUnsorted() {
			l := label{r.Key(), value}
			if slices.Contains(candidate, l) {
				continue
			}
			candidate = append(candidate, l)
			if index, ok := ns.byLabel[l]; ok {
				cost += len(index.entries) + len(index.counters)
			}
		}
		if best == nil || cost < bestCost {
			best, bestCost = candidate, cost
		}
	}
	return best
}

// evictCounters drops counters until the limits hold, but never the one that is in use.
func (ix *Index) evictCounters(inUse *counter) {
	cs := &ix.counters
	for {
		oldest, ok := cs.recency.Back().Value.(*counter)
		if !ok || oldest == inUse {
			return
		}
		within := len(cs.byKey) <= ix.limits.Selectors && cs.cells <= ix.limits.Cells
		if within && cs.clock-oldest.used <= ix.limits.IdleQueries {
			return
		}
		ix.dropCounter(oldest)
	}
}

func (ix *Index) dropCounter(c *counter) {
	ns := ix.labelSets.namespace(c.key.namespace)
	for _, index := range c.lookupIndexes(ns) {
		for _, entry := range index.entries {
			entry.set.counters = withoutCounter(entry.set.counters, c)
		}
		index.counters = withoutCounter(index.counters, c)
	}
	for _, l := range c.lookup {
		ns.dropIndexIfEmpty(l)
	}
	ix.labelSets.dropNamespaceIfEmpty(ns)
	c.owner.cells -= c.cellCount()
	c.owner.recency.Remove(c.recency)
	c.owner.evicted++
	delete(c.owner.byKey, c.key)
}

// withoutCounter removes a counter from a list whose order does not matter.
func withoutCounter(list []*counter, c *counter) []*counter {
	i := slices.Index(list, c)
	if i < 0 {
		return list
	}
	last := len(list) - 1
	list[i] = list[last]
	list[last] = nil
	return list[:last]
}

// cell is how many pods there are on one node.
type cell struct {
	slot int32
	pods int32
}

// cells are pods per node, in order of slot and without zeros. That takes 8 bytes for each node which
// has pods, and can be summed at the speed of memory.
type cells []cell

// add changes the number of pods on a node.
func (c *cells) addPods(slot, pods int32) {
	i, found := slices.BinarySearchFunc(*c, slot, func(e cell, slot int32) int { return cmp.Compare(e.slot, slot) })
	switch {
	case !found:
		*c = slices.Insert(*c, i, cell{slot: slot, pods: pods})
	case (*c)[i].pods+pods == 0:
		*c = slices.Delete(*c, i, i+1)
	default:
		(*c)[i].pods += pods
	}
}

// sumCells adds up several lists. scratch must hold a zero for every slot, and does so again afterwards.
func sumCells(lists []cells, scratch []int32) cells {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return slices.Clone(lists[0])
	}
	n := 0
	for _, list := range lists {
		for _, e := range list {
			if scratch[e.slot] == 0 {
				n++
			}
			scratch[e.slot] += e.pods
		}
	}
	sum := make(cells, 0, n)
	for slot, pods := range scratch {
		if pods != 0 {
			sum = append(sum, cell{slot: int32(slot), pods: pods}) //nolint:gosec // slots are int32
			scratch[slot] = 0
		}
	}
	return sum
}
