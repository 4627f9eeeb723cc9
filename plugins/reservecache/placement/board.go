package placement

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// View is the nodes of a cluster as someone sees them, by their place in his list. It must not change while
// it is read.
type View interface {
	Len() int
	// Generation changes whenever anything else does that the view says of the node; no two nodes have
	// the same.
	Generation(i int) int64
	Node(i int) *v1.Node
	// Resources returns what the node offers and what its pods have requested.
	Resources(i int) (allocatable, requested ledger.Resources)
	// Present reports whether a pod is on the node.
	Present(i int, uid types.UID) bool
}

// board is what is known of each node from one view, brought up to date by changes.
type board struct {
	ledger *ledger.Ledger
	view   View
	holds  ledger.HoldsView
	// entries are in the order of the view.
	entries []*entry
	byName  map[string]*entry
	zones   map[string][]*entry
	fits    map[string]*fitted
	// serial counts the updates, and changed are the nodes of which the last found something new.
	serial  uint64
	changed []*entry
	// verdicts counts the times that a node turned fit or unfit, or that the order of nodes changed.
	verdicts uint64
}

// entry is one node.
type entry struct {
	// index is the place in the view and in entries.
	index      int
	generation int64
	name, zone string
	object     *v1.Node
	held       *ledger.NodeHolds
	// allocatable shares its map with the view.
	allocatable ledger.Resources
	// room is what no pod has requested and no unused slot holds. It may be less than nothing.
	room ledger.Resources
	// fresh is the serial of the update that last loaded the entry, and replaced whether the object was
	// another one then.
	fresh    uint64
	replaced bool
}

// fitted is how the nodes fare under one Fit.
type fitted struct {
	fit *Fit
	// unfit is by entry.index.
	unfit []Unfit
	tally map[string]*tally
}

// tally counts the nodes of a zone: those that are selected, and of these those that may take slots.
type tally struct{ selected, usable int }

func newBoard(l *ledger.Ledger) *board {
	return &board{ledger: l, byName: map[string]*entry{}, fits: map[string]*fitted{}}
}

// update reads what has changed in the view and in the holds. Its cost is that of a look at each node's
// generation and of reading the nodes that changed.
func (b *board) update(view View) {
	b.view = view
	b.serial++
	clear(b.changed)
	b.changed = b.changed[:0]
	b.ledger.UpdateHoldsView(&b.holds)

	n := view.Len()
	moved := n != len(b.entries)
	for i := range n {
		generation := view.Generation(i)
		if i < len(b.entries) && b.entries[i].generation == generation {
			continue
		}
		object := view.Node(i)
		e := b.byName[object.Name]
		if e == nil {
			e = &entry{name: object.Name, generation: -1}
			b.byName[e.name] = e
			moved = true
		}
		if e.index != i || i >= len(b.entries) || b.entries[i] != e {
			e.index = i
			moved = true
		}
		if e.generation == generation {
			continue
		}
		e.generation = generation
		moved = b.load(e, object) || moved
	}
	if moved {
		b.order()
	} else {
		b.judge()
	}
	for _, name := range b.holds.Changed() {
		if e := b.byName[name]; e != nil && e.fresh != b.serial {
			b.load(e, e.object)
		}
	}
}

// load reads one node and reports whether it is in another zone than before.
func (b *board) load(e *entry, object *v1.Node) bool {
	was, zone := e.object, object.Labels[v1.LabelTopologyZone]
	moved := was == nil || e.zone != zone
	e.object, e.zone = object, zone
	var requested ledger.Resources
	e.allocatable, requested = b.view.Resources(e.index)
	e.held = b.holds.Node(e.name)
	e.room = e.held.Room(&e.allocatable, &requested, nil, b.present(e))
	if e.fresh != b.serial {
		b.changed = append(b.changed, e)
	}
	e.fresh = b.serial
	e.replaced = was != object
	return moved
}

// touched returns the claims that hold something on the nodes that changed.
func (b *board) touched() map[ledger.ClaimID]struct{} {
	claims := map[ledger.ClaimID]struct{}{}
	for _, e := range b.changed {
		if e.held != nil {
			for i := range e.held.Holds {
				claims[e.held.Holds[i].Claim.ID] = struct{}{}
			}
		}
	}
	return claims
}

// offers reports whether a node that changed has room for a slot of a demand.
func (b *board) offers(d *Demand) bool {
	nodes := b.under(d.Fit)
	return slices.ContainsFunc(b.changed, func(e *entry) bool {
		return nodes.unfit[e.index] == "" && e.room.Slots(&d.Slot) > 0
	})
}

// judge looks again at the nodes whose objects were replaced. All are where they were.
func (b *board) judge() {
	for _, e := range b.changed {
		if !e.replaced {
			continue
		}
		for _, f := range b.fits {
			if f.judge(e) {
				b.verdicts++
			}
		}
	}
}

// present returns a function that tells which pods are on a node. It is good until the next update.
func (b *board) present(e *entry) func(types.UID) bool {
	view, i := b.view, e.index
	return func(uid types.UID) bool { return view.Present(i, uid) }
}

// seen returns the node as the ledger has to judge it.
func (b *board) seen(e *entry) *ledger.Seen {
	allocatable, requested := b.view.Resources(e.index)
	return &ledger.Seen{Allocatable: allocatable, Requested: requested, Present: b.present(e)}
}

// order rebuilds what depends on which nodes there are and in which zones.
func (b *board) order() {
	n := b.view.Len()
	clear(b.entries)
	b.entries = b.entries[:0]
	b.zones = map[string][]*entry{}
	for i := range n {
		e := b.byName[b.view.Node(i).Name]
		e.index = i
		b.entries = append(b.entries, e)
		b.zones[e.zone] = append(b.zones[e.zone], e)
	}
	if len(b.byName) > n {
		here := make(map[*entry]struct{}, n)
		for _, e := range b.entries {
			here[e] = struct{}{}
		}
		for name, e := range b.byName {
			if _, stays := here[e]; !stays {
				delete(b.byName, name)
			}
		}
	}
	// What was judged is by the places of the nodes.
	clear(b.fits)
	b.verdicts++
}

// under returns how the nodes fare under a fit, judged once for all demands that have it.
func (b *board) under(fit *Fit) *fitted {
	f := b.fits[fit.key]
	if f == nil {
		f = &fitted{fit: fit, unfit: make([]Unfit, len(b.entries)), tally: map[string]*tally{}}
		for zone := range b.zones {
			f.tally[zone] = &tally{}
		}
		for i, e := range b.entries {
			f.unfit[i] = fit.Of(e.object)
			f.tally[e.zone].count(f.unfit[i], 1)
		}
		b.fits[fit.key] = f
	}
	return f
}

// judge looks at a node again that has changed and is where it was, and reports whether it found otherwise
// than before.
func (f *fitted) judge(e *entry) bool {
	was, is := f.unfit[e.index], f.fit.Of(e.object)
	t := f.tally[e.zone]
	t.count(was, -1)
	t.count(is, 1)
	f.unfit[e.index] = is
	return was != is
}

func (t *tally) count(unfit Unfit, sign int) {
	if unfit != NotSelected {
		t.selected += sign
	}
	if unfit == "" {
		t.usable += sign
	}
}

// snapshotView shows a snapshot of the ledger.
type snapshotView struct{ *ledger.Snapshot }

func (v snapshotView) Len() int               { return len(v.Nodes()) }
func (v snapshotView) Generation(i int) int64 { return int64(v.Nodes()[i].Generation) }
func (v snapshotView) Node(i int) *v1.Node    { return v.Nodes()[i].Node }

func (v snapshotView) Resources(i int) (allocatable, requested ledger.Resources) {
	n := v.Nodes()[i]
	return n.Allocatable, n.Requested
}

func (v snapshotView) Present(i int, uid types.UID) bool {
	for _, pod := range v.Nodes()[i].Pods {
		if pod.UID == uid {
			return true
		}
	}
	return false
}
