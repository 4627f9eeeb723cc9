package counts

import (
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

// add counts pods of a shape onto a node or off it.
func (c *counter) add(sh *shape, slot, pods int32) {
	list := &c.cells
	value, grouped := c.groupOf(sh)
	if grouped {
		if list = c.groups[value]; list == nil {
			list = &cells{}
			c.groups[value] = list
		}
	}
	before := len(*list)
	list.add(slot, pods)
	c.owner.cells += len(*list) - before
	if grouped && len(*list) == 0 {
		delete(c.groups, value)
	}
}

// groupOf returns the group that the pods of a shape belong to; false if they count one by one.
func (c *counter) groupOf(sh *shape) (string, bool) {
	if c.groups == nil {
		return "", false
	}
	value := sh.labels[c.key.groupBy]
	return value, value != ""
}

// size is how many cells the counter has.
func (c *counter) size() int {
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

// counter returns the counter for a query, whose selector must not be labels.Nothing. The first time, that costs as much as there
// are shapes with the selector's rarest label, and nodes with matching pods.
func (ix *Index) counter(q *Query) *counter {
	cs := &ix.counters
	cs.clock++
	key := counterKey{q.Namespace, q.Selector.String(), q.GroupBy}
	c, ok := cs.byKey[key]
	if !ok {
		c = &counter{key: key, selector: q.Selector, owner: cs}
		if q.GroupBy != "" {
			c.groups = map[string]*cells{}
		}
		ix.build(c)
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

// build counts the matching pods and enters the counter where pods look for it.
func (ix *Index) build(c *counter) {
	ns := ix.shapes.namespace(c.key.namespace)
	c.lookup = lookupLabels(ns, c.selector)
	var parts []cells
	grouped := map[string][]cells{}
	for _, t := range c.terms(ns) {
		for _, entry := range t.shapes {
			if !c.matches(entry.shape.labels) {
				continue
			}
			entry.shape.counters = append(entry.shape.counters, c)
			if value, ok := c.groupOf(entry.shape); ok {
				grouped[value] = append(grouped[value], entry.shape.cells)
			} else {
				parts = append(parts, entry.shape.cells)
			}
		}
		t.counters = append(t.counters, c)
	}
	scratch := ix.scratch[:len(ix.slots)]
	c.cells = sumCells(parts, scratch)
	for value, parts := range grouped {
		c.groups[value] = new(sumCells(parts, scratch))
	}
	c.owner.cells += c.size()
}

// terms returns where the counter is looked up.
func (c *counter) terms(ns *namespace) []*term {
	if len(c.lookup) == 0 {
		return []*term{&ns.all}
	}
	terms := make([]*term, len(c.lookup))
	for i, l := range c.lookup {
		terms[i] = ns.term(l)
	}
	return terms
}

// lookupLabels picks, among the requirements that name the values of a label, the one that the fewest
// shapes and other selectors share.
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
			if t, ok := ns.terms[l]; ok {
				cost += len(t.shapes) + len(t.counters)
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
		ix.drop(oldest)
	}
}

func (ix *Index) drop(c *counter) {
	ns := ix.shapes.namespace(c.key.namespace)
	for _, t := range c.terms(ns) {
		for _, entry := range t.shapes {
			entry.shape.counters = withoutCounter(entry.shape.counters, c)
		}
		t.counters = withoutCounter(t.counters, c)
	}
	for _, l := range c.lookup {
		ns.dropTermIfEmpty(l)
	}
	ix.shapes.dropNamespaceIfEmpty(ns)
	c.owner.cells -= c.size()
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
