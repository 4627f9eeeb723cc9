package placement

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// View is the nodes of a cluster in a list, from one source. It must not change while it is read.
type View interface {
	Len() int
	// Generation changes whenever the node does in the view; no two nodes have the same.
	Generation(i int) int64
	// Recent returns the names of the nodes that may have changed since the last view; false if any may have. Changes that it leaves out
	// are found once it is false.
	Recent() (names []string, known bool)
	// Outdated reports whether the source has a newer state of a node.
	Outdated(i int) bool
	Node(i int) *v1.Node
	// Resources returns the allocatable of a node and the requests of its pods.
	Resources(i int) (allocatable, requested ledger.Resources)
	// Owned returns what the pods of each claim on the node ask for together, their number in Pods; nil if no pod belongs to a claim. The
	// result is the caller's.
	Owned(i int) map[types.UID]ledger.Resources
}

// rooms has the nodes of one source of views, and what room they have: one of the scheduling cycles, and one of the ledger between cycles. An
// update makes it equal to a view. The two hear of events at different times, and know nothing of each other.
type rooms struct {
	held *holds.View
	// ownedChanged is called when other pods of claims are on a node than before, or ask for something else.
	ownedChanged func(n *nodeRoom, was map[types.UID]ledger.Resources)
	// nominated is what the pods ask for that were nominated to a node when the planner last asked; all rooms share it.
	nominated map[string]ledger.Resources
	nodes     map[string]*nodeRoom
	zones     map[string]*zone
	// read returns a view, and view is that of the last update, with the nodes in that order.
	read  func() View
	view  View
	order []*nodeRoom
	// freed counts the times that nodes were freed. offered is the point up to which every claim that lacks slots has looked at all freed
	// nodes.
	freed, offered uint64
	// removed are the nodes that the last updates have not found any more, until the planner takes them. moved is set when nodes came or
	// went.
	removed []string
	moved   bool
	// notes are what the planner has to do about nodes; nil for the rooms of cycles, which only look for room.
	notes *notes
}

// notes are the nodes of which something has changed.
type notes struct {
	// changed are those that have changed since Reconcile took them.
	changed []*nodeRoom
	// roomier are those that were freed, or that have more unused slots, since TakeFreed.
	roomier []*nodeRoom
	// objects are those whose object has changed since they were last tallied.
	objects []*nodeRoom
}

// nodeRoom is one node and its room.
type nodeRoom struct {
	name string
	// zone is nil for a node that is gone.
	zone   *zone
	object *v1.Node
	// generation and index are those of the last view.
	generation int64
	index      int

	allocatable, requested ledger.Resources
	// owned is what the pods of each claim ask for together.
	owned map[types.UID]ledger.Resources
	held  *holds.NodeHolds
	// unused is what is held but not used.
	unused ledger.Resources
	// room is what is left, also by the draft that is being made. It may be negative.
	room ledger.Resources

	// freed is when the node was last freed; newer and older link the nodes of a zone in that order.
	freed        uint64
	newer, older *nodeRoom

	// countedAs is the object by which the node was last counted under the fits; nil before that.
	countedAs *v1.Node
	// tallyQueued is set for the nodes in objects, reconcileQueued for those in changed, wakeQueued for those in roomier.
	tallyQueued, reconcileQueued, wakeQueued bool
}

// zone is the nodes of a zone.
type zone struct {
	name string
	// newest is the node that was freed last.
	newest *nodeRoom
	// nodes counts them; allocatable and unused are sums over them.
	nodes               int
	allocatable, unused ledger.Resources
}

// tally counts the nodes of a zone: those that are selected, and of these those that may take slots.
type tally struct{ selected, usable int }

func newRooms(h *holds.Holds, nominated map[string]ledger.Resources) *rooms {
	return &rooms{held: h.NewView(), nominated: nominated, nodes: map[string]*nodeRoom{}, zones: map[string]*zone{}}
}

// update makes the rooms equal to a view, or to its recent nodes, and to what is held.
func (r *rooms) update(view View, all bool) {
	r.view = view
	held := r.held.Update() // first: what a pod has taken makes no room for others beside that pod
	if names, known := view.Recent(); all || !known || !r.compareNodes(names) {
		r.compareAll()
	}
	r.updateRooms(held)
}

// compareAll reads the nodes whose generation is another than before.
func (r *rooms) compareAll() {
	moved := r.view.Len() != len(r.order)
	for i := range r.view.Len() {
		generation := r.view.Generation(i)
		if i < len(r.order) && r.order[i].generation == generation {
			continue
		}
		name := r.view.Node(i).Name
		n := r.nodes[name]
		if n == nil {
			n = &nodeRoom{name: name}
			r.nodes[name] = n
		}
		moved = moved || r.order[i] != n
		if n.generation != generation || n.zone == nil {
			r.readNode(n, i)
		}
	}
	if moved {
		r.rebuildOrder()
	}
}

// compareNodes is compareAll for some nodes. It reports false if nodes have come, gone or moved.
func (r *rooms) compareNodes(names []string) bool {
	if r.view.Len() != len(r.order) {
		return false
	}
	for _, name := range names {
		n := r.nodes[name]
		switch {
		case n == nil: // the view does not have it yet: its number of nodes is the same
		case r.view.Node(n.index).Name != name:
			return false
		case r.view.Generation(n.index) != n.generation:
			r.readNode(n, n.index)
		}
	}
	return true
}

// upToDate reports whether a node is as its source has it.
func (r *rooms) upToDate(n *nodeRoom) bool {
	return r.view.Generation(n.index) == n.generation && !r.view.Outdated(n.index)
}

// updateHeldRoom applies changes of what is held.
func (r *rooms) updateHeldRoom() { r.updateRooms(r.held.Update()) }

func (r *rooms) updateRooms(names []string) {
	for _, name := range names {
		if n := r.nodes[name]; n != nil && n.zone != nil {
			r.updateRoom(n)
		}
	}
}

// rebuildOrder handles new, removed and reordered nodes.
func (r *rooms) rebuildOrder() {
	before := r.order
	r.moved = true
	r.order = make([]*nodeRoom, 0, r.view.Len())
	there := make(map[*nodeRoom]bool, r.view.Len())
	for i := range r.view.Len() {
		n := r.nodes[r.view.Node(i).Name]
		n.index, there[n] = i, true
		r.order = append(r.order, n)
	}
	for _, n := range before {
		if !there[n] {
			r.removeNode(n)
		}
	}
}

// removeNode handles a node that is gone.
func (r *rooms) removeNode(n *nodeRoom) {
	r.queueForTally(n)
	r.leaveZone(n)
	r.setOwned(n, nil)
	delete(r.nodes, n.name)
	r.removed = append(r.removed, n.name)
}

// readAgain has the next update read a node again.
func (r *rooms) readAgain(n *nodeRoom) { n.generation = -1 }

// readNode reads the i-th node of the view.
func (r *rooms) readNode(n *nodeRoom, i int) {
	object := r.view.Node(i)
	allocatable, requested := r.view.Resources(i)
	if n.countedAs != object {
		r.queueForTally(n)
	}
	n.index, n.generation = i, r.view.Generation(i)
	if n.object != object {
		if n.zone != nil && objectFrees(n.object, object) {
			r.offerAgain(n)
		}
		n.object = object
	}
	r.enterZone(n, object.Labels[v1.LabelTopologyZone])
	n.zone.allocatable.Add(&n.allocatable, -1)
	// Copy the maps, since the view will change them.
	n.allocatable, n.requested = allocatable.Clone(), requested.Clone()
	n.zone.allocatable.Add(&n.allocatable, 1)
	r.setOwned(n, r.view.Owned(i))
	r.updateRoom(n)
}

// updateRoom computes the room of a node.
func (r *rooms) updateRoom(n *nodeRoom) {
	n.held = r.held.Node(n.name)
	unused := n.held.Unused(n.ownedBy)
	before := n.room
	n.zone.unused.Add(&n.unused, -1)
	n.zone.unused.Add(&unused, 1)
	if unused.Exceeds(&n.unused) != "" {
		r.queueForWake(n) // to pods that may use the slots
	}
	n.unused = unused.Clone()
	n.resetRoom()
	if n.room.Exceeds(&before) != "" {
		r.offerAgain(n)
	}
	r.queueForReconcile(n)
}

// presentObject returns the node's object, or nil for a node that is gone.
func (n *nodeRoom) presentObject() *v1.Node {
	if n.zone == nil {
		return nil
	}
	return n.object
}

// resetRoom sets the room of a node as if there were no draft.
func (n *nodeRoom) resetRoom() {
	n.room = n.allocatable.Less(&n.requested)
	n.room.Add(&n.unused, -1)
}

// queueForReconcile marks a node for Reconcile.
func (r *rooms) queueForReconcile(n *nodeRoom) {
	if r.notes != nil && !n.reconcileQueued {
		n.reconcileQueued = true
		r.notes.changed = append(r.notes.changed, n)
	}
}

// setOwned records what the pods of claims on a node ask for.
func (r *rooms) setOwned(n *nodeRoom, owned map[types.UID]ledger.Resources) {
	if before := n.owned; !sameOwned(before, owned) {
		n.owned = owned
		r.ownedChanged(n, before)
	}
}

// rereadOwned reads again what the pods of claims ask for, after these belong to other claims than before.
func (r *rooms) rereadOwned() {
	for i, n := range r.order {
		if owned := r.view.Owned(i); !sameOwned(n.owned, owned) {
			r.setOwned(n, owned)
			r.updateRoom(n)
		}
	}
}

func sameOwned(a, b map[types.UID]ledger.Resources) bool {
	return maps.EqualFunc(a, b, func(a, b ledger.Resources) bool { return a.Equal(&b) })
}

// ownedBy returns what the pods of a claim ask for on the node.
func (n *nodeRoom) ownedBy(claim types.UID) ledger.Resources { return n.owned[claim] }

// objectFrees reports whether a node may take slots, or pods, that it could not take before.
func objectFrees(before, now *v1.Node) bool {
	return before.Spec.Unschedulable && !now.Spec.Unschedulable || unready(before) && !unready(now) ||
		len(before.Spec.Taints) > 0 && !apiequality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints) || !maps.Equal(before.Labels, now.Labels)
}

// offerAgain records that a node may have new room for slots, and puts it first in its zone.
func (r *rooms) offerAgain(n *nodeRoom) {
	r.markFreed(n)
	if n.zone == nil || n.zone.newest == n {
		return
	}
	n.zone.unlink(n)
	n.zone.link(n)
}

// mostSince returns an amount that is no less than the room of any node that was freed after a point. It reports false if there
// are more than limit of these.
func (r *rooms) mostSince(point uint64, limit int) (most ledger.Resources, ok bool) {
	for _, z := range r.zones {
		for n := z.newest; n != nil && n.freed > point; n = n.older {
			if limit--; limit < 0 {
				return most, false
			}
			most.Raise(&n.room)
		}
	}
	return most, true
}

func (r *rooms) markFreed(n *nodeRoom) {
	r.freed++
	n.freed = r.freed
	r.queueForWake(n)
}

// queueForWake records that a node may have new room for a pod.
func (r *rooms) queueForWake(n *nodeRoom) {
	if r.notes != nil && !n.wakeQueued {
		n.wakeQueued = true
		r.notes.roomier = append(r.notes.roomier, n)
	}
}

func (z *zone) link(n *nodeRoom) {
	n.older = z.newest
	if z.newest != nil {
		z.newest.newer = n
	}
	z.newest = n
}

func (z *zone) unlink(n *nodeRoom) {
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
func (r *rooms) enterZone(n *nodeRoom, name string) {
	if n.zone != nil && n.zone.name == name {
		return
	}
	r.leaveZone(n)
	z := r.zones[name]
	if z == nil {
		z = &zone{name: name}
		r.zones[name] = z
	}
	z.nodes++
	z.allocatable.Add(&n.allocatable, 1)
	z.unused.Add(&n.unused, 1)
	n.zone = z
	r.markFreed(n)
	z.link(n)
}

func (r *rooms) leaveZone(n *nodeRoom) {
	z := n.zone
	if z == nil {
		return
	}
	z.unlink(n)
	z.nodes--
	z.allocatable.Add(&n.allocatable, -1)
	z.unused.Add(&n.unused, -1)
	n.zone = nil
	if z.nodes == 0 {
		delete(r.zones, z.name)
	}
}

// queueForTally marks a node to be tallied again.
func (r *rooms) queueForTally(n *nodeRoom) {
	if r.notes != nil && !n.tallyQueued {
		n.tallyQueued = true
		r.notes.objects = append(r.notes.objects, n)
	}
}

// freeRoom returns what claims may take of a node: what is left besides nominated pods, whatever their priority. They may have had
// pods evicted for it, and would evict others elsewhere.
func (r *rooms) freeRoom(n *nodeRoom) *ledger.Resources {
	nominated, some := r.nominated[n.name]
	if !some {
		return &n.room
	}
	room := n.room.Less(&nominated)
	return &room
}
