package counts

import (
	"iter"
	"math"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// absent marks, among the counts of a table, a value that no eligible node has.
const absent = -1

// Domain is a domain of a Table, which Find returns. The tables of one Count or Direct with one topology key number
// domains alike; to another table it means nothing.
type Domain int32

// unknown is the domain of a value that no node has.
const unknown Domain = -2

// Table is the answer to a Query at one moment. It does not change.
type Table struct {
	key    string
	ids    map[string]int32 // domain value -> index in names and counts
	names  []string         // domain values
	counts []int32          // matching pods per domain, or absent; may end before names
	// slots and domain know the domains of most nodes: a look at a node's labels is a look at memory that
	// has not been looked at for long. Both are nil without an Index.
	slots  map[*v1.Node]int32
	domain []int32 // by slot: index in counts, or none

	domains int
	minimum int
	maximum int
	// everywhere tells that each node of the snapshot has a domain, eligible or not, and inUse is how many different
	// ones they have. Without an Index neither is known, and everywhere is false.
	everywhere bool
	inUse      int

	ascendingOnce sync.Once
	ascending     []Domain // by number of pods; only made when a View needs it
}

// newTable takes over ids, names and counts.
func newTable(key string, ids map[string]int32, names []string, counts []int32) *Table {
	t := &Table{key: key, ids: ids, names: names, counts: counts}
	lowest := int32(math.MaxInt32)
	for _, n := range counts {
		if n != absent {
			t.domains++
			lowest = min(lowest, n)
			t.maximum = max(t.maximum, int(n))
		}
	}
	t.minimum = int(lowest)
	return t
}

// Domains returns how many domains there are.
func (t *Table) Domains() int { return t.domains }

// Minimum returns the number of matching pods in the domain that has the fewest, or math.MaxInt32 when
// there is no domain.
func (t *Table) Minimum() int { return t.minimum }

// Everywhere returns how many different domains the nodes of the snapshot have, eligible or not, and true if each node
// is known to have one.
func (t *Table) Everywhere() (values int, ok bool) { return t.inUse, t.everywhere }

// Count returns the number of matching pods in a domain; 0 for a value that is no domain.
func (t *Table) Count(value string) int {
	return t.At(t.domainNamed(value))
}

// Find returns the domain of a node of the snapshot that the table is about, and false for a node without
// the topology key.
func (t *Table) Find(node *v1.Node) (Domain, bool) {
	if slot, ok := t.slots[node]; ok {
		id := t.domain[slot]
		return Domain(id), id != none
	}
	value, ok := valueOf(t.key, node)
	if !ok {
		return none, false
	}
	return t.domainNamed(value), true
}

// Empty returns the domain of the empty value, which is also that of the nodes without the topology key where the
// query said so.
func (t *Table) Empty() Domain { return t.domainNamed("") }

// At returns the number of matching pods in a domain; 0 in one that no eligible node has.
func (t *Table) At(d Domain) int {
	if d < 0 || int(d) >= len(t.counts) {
		return 0
	}
	return int(max(t.counts[d], 0))
}

// Counts reports whether a domain has an eligible node.
func (t *Table) Counts(d Domain) bool {
	return d >= 0 && int(d) < len(t.counts) && t.counts[d] != absent
}

// All yields the domains with their values.
func (t *Table) All() iter.Seq2[Domain, string] {
	return func(yield func(Domain, string) bool) {
		for id, n := range t.counts {
			if n != absent && !yield(Domain(id), t.names[id]) { //nolint:gosec // as many as there are nodes at most
				return
			}
		}
	}
}

// domainNamed returns the domain of a value, and unknown for one that no node has.
func (t *Table) domainNamed(value string) Domain {
	if id, ok := t.ids[value]; ok {
		return Domain(id)
	}
	return unknown
}

// byCount returns the domains in ascending order of their pods.
func (t *Table) byCount() []Domain {
	t.ascendingOnce.Do(func() {
		t.ascending = make([]Domain, 0, t.domains)
		for d := range t.All() {
			t.ascending = append(t.ascending, d)
		}
		slices.SortFunc(t.ascending, func(a, b Domain) int { return int(t.counts[a] - t.counts[b]) })
	})
	return t.ascending
}

// change is how many pods a View adds to one domain; it may be negative.
type change struct {
	value string
	at    Domain
	pods  int
}

// View is a Table with some pods added and removed. The zero View is empty; a View belongs to one
// goroutine, a copy made by Clone is independent of it.
type View struct {
	table   *Table
	changes []change
	minimum int
	domains int
}

// NewView returns a view of a table without changes.
func NewView(t *Table) View {
	return View{table: t, minimum: t.minimum, domains: t.domains}
}

// Clone returns an independent copy.
func (v View) Clone() View {
	v.changes = slices.Clone(v.changes)
	return v
}

// Domains returns how many domains there are.
func (v *View) Domains() int { return v.domains }

// Minimum returns the number of matching pods in the domain that has the fewest.
func (v *View) Minimum() int { return v.minimum }

// Maximum returns the number of matching pods in the domain that has the most, and true if it holds for each node of
// the snapshot without a look at its domain. It does not when a node may have none, or when the view has changes.
func (v *View) Maximum() (int, bool) {
	return v.table.maximum, v.table.everywhere && len(v.changes) == 0
}

// Count returns the number of matching pods in a domain; 0 for a value that is no domain.
func (v *View) Count(value string) int {
	n := v.table.Count(value)
	for i := range v.changes {
		if v.changes[i].value == value {
			return n + v.changes[i].pods
		}
	}
	return n
}

// Find returns the domain of a node, as Table.Find does.
func (v *View) Find(node *v1.Node) (Domain, bool) { return v.table.Find(node) }

// CountAt returns the number of matching pods in the domain that Find returned for the node.
func (v *View) CountAt(d Domain, node *v1.Node) int {
	if len(v.changes) == 0 {
		return v.table.At(d)
	}
	value, _ := valueOf(v.table.key, node)
	return v.Count(value)
}

// Add puts pods into a domain, or takes them out when pods is negative. The caller has made sure that
// they match and that their node is eligible, which makes a value that was no domain become one.
func (v *View) Add(value string, pods int) {
	i := slices.IndexFunc(v.changes, func(c change) bool { return c.value == value })
	if i < 0 {
		at := v.table.domainNamed(value)
		if !v.table.Counts(at) {
			v.domains++
		}
		i = len(v.changes)
		v.changes = append(v.changes, change{value: value, at: at})
	}
	v.changes[i].pods += pods
	v.minimum = v.findMinimum()
}

// findMinimum finds the minimum: among the changed domains, and the first unchanged one in ascending order.
func (v *View) findMinimum() int {
	lowest := math.MaxInt32
	for _, c := range v.changes {
		lowest = min(lowest, v.table.At(c.at)+c.pods)
	}
	for _, d := range v.table.byCount() {
		if !slices.ContainsFunc(v.changes, func(c change) bool { return c.at == d }) {
			return min(lowest, v.table.At(d))
		}
	}
	return lowest
}
