package placement

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// View is the nodes of a cluster in a list, from one source. It must not change while it is read.
type View interface {
	Len() int
	// Generation changes whenever the node does in the view; no two nodes have the same.
	Generation(i int) int64
	// Recent returns the names of the nodes that may have changed since the last view; false if any may have. Changes
	// that it leaves out are found once it is false.
	Recent() (names []string, known bool)
	// Outdated reports whether the source has a newer state of a node.
	Outdated(i int) bool
	Node(i int) *v1.Node
	// Resources returns the allocatable of a node and the requests of its pods.
	Resources(i int) (allocatable, requested ledger.Resources)
	// Owned returns what the pods of each claim on the node ask for together, their number in Pods; nil if no pod
	// belongs to a claim. The result is the caller's.
	Owned(i int) map[types.UID]ledger.Resources
}

// nodeSet has the nodes of one source of views, and what room they have. An update makes it equal to a view. The
// planner's lock guards it.
type nodeSet struct {
	held *holds.View
	// onOwnedChanged is called when other pods of claims are on a node than before, or ask for something else.
	onOwnedChanged func(n *nodeRoom, before map[types.UID]ledger.Resources)
	// ownersChanged means that pods may belong to other claims than at the last update. OwnersChanged sets it.
	ownersChanged bool
	// nominated is what the pods ask for that were nominated to a node when the planner last asked; all sets share it.
	nominated map[string]ledger.Resources
	byName    map[string]*nodeRoom
	zones     map[string]*zone
	// read returns a view, and view is that of the last update, with the nodes in that order.
	read  func() View
	view  View
	order []*nodeRoom
	// freeings counts the times that nodes were freed: it is the clock by which claims search. Up to offeredUpTo,
	// every claim that lacks something has looked at what was freed.
	freeings, offeredUpTo uint64
	// tooSmall is a span in which no node was freed that has room for a slot of any seeker that is not inclusive.
	// They are yet to be told.
	tooSmall span
	// removed are the nodes that the last updates have not found any more, until the planner takes them. moved is set
	// when nodes came or went.
	removed []*nodeRoom
	moved   bool
	// changes are what the planner has to do about nodes; nil for those of cycles, in which it only looks for room.
	changes *nodeChanges
}

// nodeChanges are the nodes of which something has changed, for each that needs to know.
type nodeChanges struct {
	// toReconcile are those that are not as they were when Reconcile last looked at them.
	toReconcile []*nodeRoom
	// toWake are those that were freed, or that have more unused slots, since TakeToWake.
	toWake []*nodeRoom
	// toRecount are those whose object has changed since they were last counted in nodeCounts.
	toRecount []*nodeRoom
}

// nodeRoom is one node and its room.
type nodeRoom struct {
	name string
	// zone is nil for a node that is gone. gone says of a node of the cycles that the ledger has removed it and does
	// not have it again. A node of that name with another UID is not gone.
	zone   *zone
	gone   bool
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
	// room is what pods, what is unused and the draft that is being made leave. It may be negative.
	room ledger.Resources

	// freedAt is the freeing at which the node was last freed; newer and older link the nodes of a zone in that order.
	freedAt      uint64
	newer, older *nodeRoom

	// countedAs is the object by which the node was last counted in nodeCounts; nil before that.
	countedAs *v1.Node
	// objectChanged is set for the nodes in toRecount, reconcileQueued for those in toReconcile, wakeQueued for those
	// in toWake.
	objectChanged, reconcileQueued, wakeQueued bool
}

func newNodeSet(h *holds.Holds, nominated map[string]ledger.Resources) *nodeSet {
	return &nodeSet{held: h.NewView(), nominated: nominated, byName: map[string]*nodeRoom{}, zones: map[string]*zone{}}
}

// update makes the set equal to what read returns, or to its recent nodes, and to what is held.
func (s *nodeSet) update(read func() View, all bool) {
	s.read, s.view = read, read()
	held := s.held.Update() // first: what a pod has taken makes no room for others beside that pod
	if names, known := s.view.Recent(); all || s.ownersChanged || !known || !s.compareNodes(names) {
		s.compareAll()
	}
	s.updateRooms(held)
	if s.ownersChanged {
		s.ownersChanged = false
		s.rereadOwned()
	}
}

// present returns a node that the source has, or nil.
func (s *nodeSet) present(name string) *nodeRoom {
	if n := s.byName[name]; n != nil && n.zone != nil {
		return n
	}
	return nil
}

// compareAll reads the nodes whose generation is another than before.
func (s *nodeSet) compareAll() {
	moved := s.view.Len() != len(s.order)
	for i := range s.view.Len() {
		generation := s.view.Generation(i)
		if i < len(s.order) && s.order[i].generation == generation {
			continue
		}
		name := s.view.Node(i).Name
		n := s.byName[name]
		if n == nil {
			n = &nodeRoom{name: name}
			s.byName[name] = n
		}
		moved = moved || s.order[i] != n
		if n.generation != generation || n.zone == nil {
			s.readNode(n, i)
		}
	}
	if moved {
		s.rebuildOrder()
	}
}

// compareNodes is compareAll for some nodes. It reports false if nodes have come, gone or moved.
func (s *nodeSet) compareNodes(names []string) bool {
	if s.view.Len() != len(s.order) {
		return false
	}
	for _, name := range names {
		n := s.byName[name]
		switch {
		case n == nil: // the view does not have it yet: its number of nodes is the same
		case s.view.Node(n.index).Name != name:
			return false
		case s.view.Generation(n.index) != n.generation:
			s.readNode(n, n.index)
		}
	}
	return true
}

// upToDate reports whether a node is as its source has it.
func (s *nodeSet) upToDate(n *nodeRoom) bool {
	return s.view.Generation(n.index) == n.generation && !s.view.Outdated(n.index)
}

// updateHeldRoom applies changes of what is held.
func (s *nodeSet) updateHeldRoom() { s.updateRooms(s.held.Update()) }

func (s *nodeSet) updateRooms(names []string) {
	for _, name := range names {
		if n := s.present(name); n != nil {
			s.updateRoom(n)
		}
	}
}

// rebuildOrder handles new, removed and reordered nodes.
func (s *nodeSet) rebuildOrder() {
	before := s.order
	s.moved = true
	s.order = make([]*nodeRoom, 0, s.view.Len())
	there := make(map[*nodeRoom]bool, s.view.Len())
	for i := range s.view.Len() {
		n := s.byName[s.view.Node(i).Name]
		n.index, there[n] = i, true
		s.order = append(s.order, n)
	}
	for _, n := range before {
		if !there[n] {
			s.removeNode(n)
		}
	}
}

// removeNode handles a node that the view does not have any more.
func (s *nodeSet) removeNode(n *nodeRoom) {
	s.queueForRecount(n)
	s.queueForReconcile(n)
	s.leaveZone(n)
	s.setOwned(n, nil)
	delete(s.byName, n.name)
	s.removed = append(s.removed, n)
}

// setGone takes a node out of its zone that the source has still.
func (s *nodeSet) setGone(n *nodeRoom) {
	n.gone = true
	s.leaveZone(n)
}

// setBack has the next update read a node that was gone.
func (s *nodeSet) setBack(n *nodeRoom) { n.gone, n.generation = false, -1 }

// readNode reads the i-th node of the view. Of a node that is gone it notes the generation alone.
func (s *nodeSet) readNode(n *nodeRoom, i int) {
	object := s.view.Node(i)
	n.gone = n.gone && object.UID == n.object.UID
	if n.gone {
		n.index, n.generation = i, s.view.Generation(i)
		return
	}
	allocatable, requested := s.view.Resources(i)
	if n.countedAs != object {
		s.queueForRecount(n)
	}
	n.index, n.generation = i, s.view.Generation(i)
	if n.object != object {
		if n.zone != nil && objectFrees(n.object, object) {
			s.free(n)
		}
		n.object = object
	}
	s.enterZone(n, object.Labels[v1.LabelTopologyZone])
	n.zone.allocatable.Add(&n.allocatable, -1)
	// Copy the maps, since the view will change them.
	n.allocatable, n.requested = allocatable.Clone(), requested.Clone()
	n.zone.allocatable.Add(&n.allocatable, 1)
	s.setOwned(n, s.view.Owned(i))
	s.updateRoom(n)
}

// updateRoom computes the room of a node.
func (s *nodeSet) updateRoom(n *nodeRoom) {
	n.held = s.held.Node(n.name)
	unused := n.held.Unused(n.ownedBy)
	before, besidePods := n.room, n.room.Clone()
	besidePods.Add(&n.unused, 1)
	n.zone.unused.Add(&n.unused, -1)
	n.zone.unused.Add(&unused, 1)
	if unused.Exceeds(&n.unused) != "" {
		s.queueForWake(n) // to pods that may use the slots
	}
	n.unused = unused.Clone()
	n.resetRoom()
	// What pods leave may have grown by as much as is held more since.
	if now := n.allocatable.Minus(&n.requested); n.room.Exceeds(&before) != "" || now.Exceeds(&besidePods) != "" {
		s.free(n)
	}
	s.queueForReconcile(n)
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
	n.room = n.allocatable.Minus(&n.requested)
	n.room.Add(&n.unused, -1)
}

// queueForReconcile marks a node for Reconcile.
func (s *nodeSet) queueForReconcile(n *nodeRoom) {
	if s.changes != nil && !n.reconcileQueued {
		n.reconcileQueued = true
		s.changes.toReconcile = append(s.changes.toReconcile, n)
	}
}

// setOwned records what the pods of claims on a node ask for.
func (s *nodeSet) setOwned(n *nodeRoom, owned map[types.UID]ledger.Resources) {
	if before := n.owned; !sameOwned(before, owned) {
		n.owned = owned
		s.onOwnedChanged(n, before)
	}
}

// rereadOwned reads again what the pods of claims ask for, after these belong to other claims than before.
func (s *nodeSet) rereadOwned() {
	for i, n := range s.order {
		if n.gone {
			continue
		}
		if owned := s.view.Owned(i); !sameOwned(n.owned, owned) {
			s.setOwned(n, owned)
			s.updateRoom(n)
		}
	}
}

func sameOwned(a, b map[types.UID]ledger.Resources) bool {
	return maps.EqualFunc(a, b, func(a, b ledger.Resources) bool { return a.Equal(&b) })
}

// ownedBy returns what the pods of a claim ask for on the node.
func (n *nodeRoom) ownedBy(claim types.UID) ledger.Resources { return n.owned[claim] }

// queueForWake records that a node may have new room for a pod.
func (s *nodeSet) queueForWake(n *nodeRoom) {
	if s.changes != nil && !n.wakeQueued {
		n.wakeQueued = true
		s.changes.toWake = append(s.changes.toWake, n)
	}
}

// queueForRecount has a node counted again in nodeCounts.
func (s *nodeSet) queueForRecount(n *nodeRoom) {
	if s.changes != nil && !n.objectChanged {
		n.objectChanged = true
		s.changes.toRecount = append(s.changes.toRecount, n)
	}
}

// freeRoom returns what claims may take of a node: what is left besides nominated pods, whatever their priority. They
// may have had pods evicted for it, and would evict others elsewhere.
func (s *nodeSet) freeRoom(n *nodeRoom) *ledger.Resources {
	nominated, found := s.nominated[n.name]
	if !found {
		return &n.room
	}
	room := n.room.Minus(&nominated)
	return &room
}
