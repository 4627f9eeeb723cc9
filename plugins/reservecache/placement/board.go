package placement

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// View is the nodes of a cluster in a list, from one source. It must not change while it is read.
type View interface {
	Len() int
	// Changed calls changed with the index and the generation of each node whose generation differs from known at that index.
	// A generation changes whenever the node does in the view; no two nodes have the same.
	Changed(known []int64, changed func(i int, generation int64))
	Node(i int) *v1.Node
	// Resources returns the allocatable of a node and the requests of its pods.
	Resources(i int) (allocatable, requested ledger.Resources)
	// Owned returns what the pods of each claim on the node ask for together, their number in Pods; nil if no pod belongs to a claim. The
	// result is the caller's.
	Owned(i int) map[types.UID]ledger.Resources
}

// source is one of the two kinds of views; each has its own generations.
type source int

const (
	cycle   source = iota // of the scheduling cycles
	between               // of the ledger, between cycles
	sources
)

// board has the state of each node. An update makes it equal to a view.
type board struct {
	held *holds.View
	// ownedChanged is called when other pods of claims are on a node than before, or ask for something else.
	ownedChanged func(n *node, was map[types.UID]ledger.Resources)
	nodes        map[string]*node
	zones        map[string]*zone
	// order are the nodes in the order of the last view of each source, and known their generations.
	order [sources][]*node
	known [sources][]int64
	// changedByOther are the nodes of each source's last view that the other source has changed since.
	changedByOther [sources][]*node
	// cycleHasMore means that the cycles' view has nodes that the ledger has not, or has no longer.
	cycleHasMore bool
	// from is the source of the last update, and view its view.
	from source
	view View
	// changed are the nodes that have changed since Reconcile took them.
	changed []*node
	// freed counts the times that nodes were freed, and roomier are the nodes that were, or that have more unused slots, since
	// TakeFreed.
	freed   uint64
	roomier []*node
	// ids counts the ids of nodes that were given, and unused are those that are free again. gone are the nodes that have one
	// still, until they are tallied no more.
	ids    int
	unused []int
	gone   []*node
	// objects are the nodes whose object has changed since they were last tallied.
	objects []*node
}

// node is one node.
type node struct {
	name string
	// id is a small number that no other node of the board has.
	id     int
	zone   *zone
	object *v1.Node
	// generation and index are those of the last view of each source, in which the node is or is not.
	generation [sources]int64
	index      [sources]int
	in         [sources]bool
	// listedAsChanged is set for the nodes in changedByOther.
	listedAsChanged [sources]bool
	// from is the source of the amounts; sameInBoth means that the other source has the same.
	from       source
	sameInBoth bool

	allocatable, requested ledger.Resources
	// owned is what the pods of each claim ask for together.
	owned map[types.UID]ledger.Resources
	held  *holds.NodeHolds
	// unused is what is held but not used.
	unused ledger.Resources
	// room is what is left, also by the draft that is being made. It may be negative.
	room ledger.Resources
	// nominated is what the pods ask for that were nominated to the node when the planner last asked.
	nominated ledger.Resources

	// freed is when the node was last freed; newer and older link the nodes of a zone in that order.
	freed        uint64
	newer, older *node

	// tallied is the object by which the node was last counted, and talliedIn its zone; nil before that.
	tallied   *v1.Node
	talliedIn string
	// listed is set for the nodes in objects, inspect for those in changed, roomier for those in roomier.
	listed, inspect, roomier bool
}

// zone is the nodes of a zone.
type zone struct {
	name string
	// newest is the node that was freed last.
	newest *node
	// nodes counts them; allocatable and unused are sums over them.
	nodes               int
	allocatable, unused ledger.Resources
}

// tally counts the nodes of a zone: those that are selected, and of these those that may take slots.
type tally struct{ selected, usable int }

func newBoard(h *holds.Holds) *board {
	return &board{held: h.NewView(), nodes: map[string]*node{}, zones: map[string]*zone{}}
}

// update makes the board equal to a view and to what is held. It compares each node's generation, and reads the nodes that
// changed.
func (b *board) update(view View, from source) {
	b.view, b.from = view, from
	order, known := b.order[from], b.known[from]
	moved := view.Len() != len(order)
	view.Changed(known, func(i int, generation int64) {
		name := view.Node(i).Name
		n := b.nodes[name]
		if n == nil {
			n = b.newNode(name)
		}
		if i < len(order) && order[i] == n {
			known[i] = generation
		} else {
			moved = true
		}
		if n.generation[from] != generation || !n.in[from] {
			n.generation[from] = generation
			n.sameInBoth = false
			b.load(n, i)
		}
	})
	if moved {
		b.reorder()
	}
	changedByOther := b.changedByOther[from]
	b.changedByOther[from] = nil
	for _, n := range changedByOther {
		n.listedAsChanged[from] = false
		if n.from != from && !n.sameInBoth && n.in[from] {
			b.load(n, n.index[from])
		}
	}
	b.weighHeld()
}

func (b *board) newNode(name string) *node {
	n := &node{name: name, from: sources, id: b.ids}
	if last := len(b.unused) - 1; last >= 0 {
		n.id, b.unused = b.unused[last], b.unused[:last]
	} else {
		b.ids++
	}
	b.nodes[name] = n
	return n
}

// weighHeld applies changes of what is held.
func (b *board) weighHeld() {
	for _, name := range b.held.Update() {
		if n := b.nodes[name]; n != nil && n.zone != nil {
			b.weigh(n)
		}
	}
}

// reorder handles new, removed and reordered nodes.
func (b *board) reorder() {
	from := b.from
	for _, n := range b.order[from] {
		n.in[from] = false
	}
	was := b.order[from]
	order, known := make([]*node, 0, b.view.Len()), make([]int64, 0, b.view.Len())
	for i := range b.view.Len() {
		n := b.nodes[b.view.Node(i).Name]
		n.in[from], n.index[from] = true, i
		order, known = append(order, n), append(known, n.generation[from])
	}
	b.order[from], b.known[from] = order, known
	for _, n := range was {
		if n.in[from] {
			continue
		}
		b.queueForReconcile(n)
		b.queueForTally(n)
		if n.from == from {
			n.sameInBoth = false
		}
		if from == between || !n.in[between] {
			b.leaveZone(n)
		}
		if !n.in[cycle] && !n.in[between] {
			b.setOwned(n, nil)
			delete(b.nodes, n.name)
			b.gone = append(b.gone, n)
		}
	}
	b.cycleHasMore = slices.ContainsFunc(b.order[cycle], func(n *node) bool { return !n.in[between] })
}

// load reads the i-th node of the view.
func (b *board) load(n *node, i int) {
	object := b.view.Node(i)
	allocatable, requested := b.view.Resources(i)
	owned := b.view.Owned(i)
	known, listed := n.zone != nil, n.in[b.from]
	if n.tallied != object {
		b.queueForTally(n)
	}
	if known && n.from != b.from && n.object == object && n.allocatable.Equal(&allocatable) && n.requested.Equal(&requested) && sameOwned(n.owned, owned) {
		n.sameInBoth = true
		n.index[b.from], n.in[b.from] = i, true
		// Reconcile may have looked at the node before the ledger had it.
		b.queueForReconcile(n)
		if !listed {
			b.free(n)
		}
		return
	}
	n.index[b.from], n.in[b.from], n.from = i, true, b.from
	// A view that does not have the node yet reads it when it does.
	if other := 1 - b.from; n.in[other] && !n.listedAsChanged[other] {
		n.listedAsChanged[other] = true
		b.changedByOther[other] = append(b.changedByOther[other], n)
	}
	if n.object != object {
		if known && objectFrees(n.object, object) {
			b.free(n)
		}
		n.object = object
	}
	b.enterZone(n, object.Labels[v1.LabelTopologyZone])
	n.zone.allocatable.Add(&n.allocatable, -1)
	// Copy the maps, since the view will change them.
	n.allocatable, n.requested = allocatable.Clone(), requested.Clone()
	n.zone.allocatable.Add(&n.allocatable, 1)
	b.setOwned(n, owned)
	b.weigh(n)
	// Searches of this view have skipped the node.
	if !listed {
		b.free(n)
	}
}

// weigh computes the room of a node.
func (b *board) weigh(n *node) {
	n.held = b.held.Node(n.name)
	unused := n.held.Unused(n.ownedBy)
	room := n.allocatable.Clone()
	room.Add(&n.requested, -1)
	room.Add(&unused, -1)
	n.zone.unused.Add(&n.unused, -1)
	n.zone.unused.Add(&unused, 1)
	if unused.Exceeds(&n.unused) != "" {
		b.queueForWake(n) // to pods that may use the slots
	}
	grown := room.Exceeds(&n.room) != ""
	n.unused, n.room = unused, room
	if grown {
		b.free(n)
	}
	b.queueForReconcile(n)
}

// reset restores the room of a node after a draft was given up.
func (n *node) reset() {
	room := n.allocatable.Clone()
	room.Add(&n.requested, -1)
	room.Add(&n.unused, -1)
	n.room = room
}

// queueForReconcile marks a node for Reconcile.
func (b *board) queueForReconcile(n *node) {
	if !n.inspect {
		n.inspect = true
		b.changed = append(b.changed, n)
	}
}

// setOwned records what the pods of claims on a node ask for.
func (b *board) setOwned(n *node, owned map[types.UID]ledger.Resources) {
	if was := n.owned; !sameOwned(was, owned) {
		n.owned = owned
		b.ownedChanged(n, was)
	}
}

// rereadOwned reads again what the pods of claims ask for, after these belong to other claims than before.
func (b *board) rereadOwned() {
	for i, n := range b.order[b.from] {
		if owned := b.view.Owned(i); !sameOwned(n.owned, owned) {
			b.setOwned(n, owned)
			b.weigh(n)
		}
	}
}

func sameOwned(a, b map[types.UID]ledger.Resources) bool {
	return maps.EqualFunc(a, b, func(a, b ledger.Resources) bool { return a.Equal(&b) })
}

// ownedBy returns what the pods of a claim ask for on the node.
func (n *node) ownedBy(claim types.UID) ledger.Resources { return n.owned[claim] }

// objectFrees reports whether a node may take slots, or pods, that it could not take before.
func objectFrees(was, is *v1.Node) bool {
	return was.Spec.Unschedulable && !is.Spec.Unschedulable || unready(was) && !unready(is) ||
		len(was.Spec.Taints) > 0 && !apiequality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) || !maps.Equal(was.Labels, is.Labels)
}

// free records that a node may have new room for slots, and puts it first in its zone.
func (b *board) free(n *node) {
	b.markFreed(n)
	if n.zone == nil || n.zone.newest == n {
		return
	}
	n.zone.unlink(n)
	n.zone.link(n)
}

// mostSince returns an amount that is no less than the room of any node that was freed after a point. It reports false if there
// are more than limit of these, or if one of them is only in the other view.
func (b *board) mostSince(point uint64, limit int) (most ledger.Resources, ok bool) {
	for _, z := range b.zones {
		for n := z.newest; n != nil && n.freed > point; n = n.older {
			if limit--; limit < 0 || !b.inView(n) {
				return most, false
			}
			most.Raise(&n.room)
		}
	}
	return most, true
}

func (b *board) markFreed(n *node) {
	b.freed++
	n.freed = b.freed
	b.queueForWake(n)
}

// queueForWake records that a node may have new room for a pod.
func (b *board) queueForWake(n *node) {
	if !n.roomier {
		n.roomier = true
		b.roomier = append(b.roomier, n)
	}
}

func (z *zone) link(n *node) {
	n.older = z.newest
	if z.newest != nil {
		z.newest.newer = n
	}
	z.newest = n
}

func (z *zone) unlink(n *node) {
	if n.newer != nil {
		n.newer.older = n.older
	}
	if n.older != nil {
		n.older.newer = n.newer
	}
	if z.newest == n {
		z.newest = n.older
	}
	n.newer, n.older = nil, nil
}

// enterZone puts a node into a zone, where it counts as freed if it is new.
func (b *board) enterZone(n *node, name string) {
	if n.zone != nil && n.zone.name == name {
		return
	}
	b.leaveZone(n)
	z := b.zones[name]
	if z == nil {
		z = &zone{name: name}
		b.zones[name] = z
	}
	z.nodes++
	z.allocatable.Add(&n.allocatable, 1)
	z.unused.Add(&n.unused, 1)
	n.zone = z
	b.markFreed(n)
	z.link(n)
}

func (b *board) leaveZone(n *node) {
	z := n.zone
	if z == nil {
		return
	}
	z.unlink(n)
	z.nodes--
	z.allocatable.Add(&n.allocatable, -1)
	z.unused.Add(&n.unused, -1)
	if n.zone = nil; z.nodes == 0 {
		delete(b.zones, z.name)
	}
}

// queueForTally marks a node to be tallied again.
func (b *board) queueForTally(n *node) {
	if !n.listed {
		n.listed = true
		b.objects = append(b.objects, n)
	}
}

// inView reports whether a node is in the view of the last update.
func (b *board) inView(n *node) bool { return n.in[b.from] && n.zone != nil }

// inAnyView reports whether a node is in the view of the last update, or only in the other one: a cycle may see a new node before the
// ledger does. A node that the ledger has removed does not exist.
func (b *board) inAnyView(n *node) bool { return n.zone != nil }

// freeRoom returns what claims may take of a node: what is left besides nominated pods, whatever their priority. They may have had
// pods evicted for it, and would evict others elsewhere.
func (n *node) freeRoom() *ledger.Resources {
	if n.nominated.IsZero() {
		return &n.room
	}
	room := n.room.Less(&n.nominated)
	return &room
}
