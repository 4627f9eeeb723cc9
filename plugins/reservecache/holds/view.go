package holds

import (
	"slices"

	"zonewise.dev/plugins/reservecache/ledger"
)

// View is what is held on each node, for a reader of its own. Make one with [Holds.NewView] and bring it up to date
// with Update; between two such calls it does not change. It is not synchronized.
type View struct {
	holds   *Holds
	version uint64
	nodes   map[string]*NodeHolds
	changed []string
	// dirty are the nodes that have changed since the last update; it is guarded by the lock of holds.
	dirty map[string]struct{}
	// most is no less than what is held on any node. stale counts the changes since it was taken.
	most  ledger.Resources
	stale int
}

// NewView returns a view, which lasts as long as the Holds.
func (s *Holds) NewView() *View {
	v := &View{holds: s, version: ^uint64(0), nodes: map[string]*NodeHolds{}, dirty: map[string]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.nodes {
		v.dirty[name] = struct{}{}
	}
	s.views = append(s.views, v)
	return v
}

// Empty reports whether nothing is held anywhere.
func (v *View) Empty() bool { return len(v.nodes) == 0 }

// Node returns what is held on a node, or nil. It does not allocate.
func (v *View) Node(name string) *NodeHolds { return v.nodes[name] }

// Update brings the view up to date and returns the nodes on which something changed, sorted; the slice is good until
// the next call. Its cost is that of the changes; without any, it is an atomic load.
func (v *View) Update() []string {
	v.changed = v.changed[:0]
	s := v.holds
	if v.version == s.version.Load() {
		return nil
	}
	s.mu.Lock()
	v.version = s.version.Load()
	for name := range v.dirty {
		if held := s.nodes[name].published(); held != nil {
			v.nodes[name] = held
		} else {
			delete(v.nodes, name)
		}
		v.changed = append(v.changed, name)
	}
	clear(v.dirty)
	s.mu.Unlock()
	slices.Sort(v.changed)
	v.updateMost()
	return v.changed
}

// Stale reports whether the holds of a node have changed since the last update. It may be called while others read the
// view.
func (v *View) Stale(name string) bool {
	v.holds.mu.Lock()
	defer v.holds.mu.Unlock()
	_, dirty := v.dirty[name]
	return dirty
}

// FitsBesideMostHeld reports whether no holds of the view can keep a pod without slots off a node, whichever node it
// is: the pod fits beside all that any one node holds, used or not. It spares most pods of a cluster with room the
// search for the node's holds. A false answer says nothing.
func (v *View) FitsBesideMostHeld(request, allocatable, requested *ledger.Resources) bool {
	if len(request.Scalar) > 0 {
		return false
	}
	if len(v.nodes) == 0 {
		return true
	}
	most := &v.most // an amount may have no place for a pod
	return !lacksRoom(1, most.Pods, allocatable.Pods-requested.Pods) &&
		!lacksRoom(request.MilliCPU, most.MilliCPU, allocatable.MilliCPU-requested.MilliCPU) &&
		!lacksRoom(request.Memory, most.Memory, allocatable.Memory-requested.Memory) &&
		!lacksRoom(request.EphemeralStorage, most.EphemeralStorage, allocatable.EphemeralStorage-requested.EphemeralStorage)
}

// updateMost keeps most no less than what is held on any node, and not much more for long: once as many nodes have
// changed as there are, it is taken from all of them.
func (v *View) updateMost() {
	v.stale += len(v.changed)
	if v.stale <= len(v.nodes) {
		for _, name := range v.changed {
			v.raiseMost(v.nodes[name])
		}
		return
	}
	v.most, v.stale = ledger.Resources{}, 0
	for _, held := range v.nodes {
		v.raiseMost(held)
	}
}

func (v *View) raiseMost(held *NodeHolds) {
	if held == nil {
		return
	}
	sum := ledger.Resources{}
	addWithoutScalars(&sum, &held.amounts, 1)
	v.most.Raise(&sum)
}
