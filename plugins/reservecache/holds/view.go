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
	// pending are the nodes that have changed since the last update; the lock of holds guards it.
	pending map[string]struct{}
	// largest is no less than what is held on any node, extended resources aside. changes counts the changes of nodes
	// since it was taken.
	largest ledger.Resources
	changes int
}

// NewView returns a view, which lasts as long as the Holds.
func (s *Holds) NewView() *View {
	v := &View{holds: s, version: ^uint64(0), nodes: map[string]*NodeHolds{}, pending: map[string]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.nodes {
		v.pending[name] = struct{}{}
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
	for name := range v.pending {
		if held := s.nodes[name].published(); held != nil {
			v.nodes[name] = held
		} else {
			delete(v.nodes, name)
		}
		v.changed = append(v.changed, name)
	}
	clear(v.pending)
	s.mu.Unlock()
	slices.Sort(v.changed)
	v.updateLargest()
	return v.changed
}

// Outdated reports whether the holds of a node have changed since the last update. It may be called while others read
// the view.
func (v *View) Outdated(name string) bool {
	v.holds.mu.Lock()
	defer v.holds.mu.Unlock()
	_, outdated := v.pending[name]
	return outdated
}

// FitsBesideLargest reports whether no holds of the view can keep a pod without slots off a node, whichever node it
// is: the pod fits beside all that any one node holds, used or not. It spares most pods of a cluster with room the
// search for the node's holds. A false answer says nothing.
func (v *View) FitsBesideLargest(request, allocatable, requested *ledger.Resources) bool {
	if len(request.Scalar) > 0 {
		return false
	}
	return len(v.nodes) == 0 || fitsBeside(request, &v.largest, allocatable, requested)
}

// updateLargest keeps largest no less than what is held on any node, and not much more for long: once as many nodes
// have changed as there are, it is taken from all of them.
func (v *View) updateLargest() {
	v.changes += len(v.changed)
	if v.changes <= len(v.nodes) {
		for _, name := range v.changed {
			v.raiseLargest(v.nodes[name])
		}
		return
	}
	v.largest, v.changes = ledger.Resources{}, 0
	for _, held := range v.nodes {
		v.raiseLargest(held)
	}
}

func (v *View) raiseLargest(held *NodeHolds) {
	if held == nil {
		return
	}
	amounts := held.amounts
	amounts.Scalar = nil
	v.largest.SetMax(&amounts)
}
