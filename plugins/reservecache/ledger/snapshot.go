package ledger

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// NodeState is a node and what is accounted to it, at the time of a snapshot.
type NodeState struct {
	Node *v1.Node
	// Pods are the pods that are accounted to the node, assumed ones among them, in no particular order.
	Pods []*v1.Pod
	// Requested is the sum of what the pods take, and Requested.Pods their number.
	Requested Resources
	// Allocatable is what the node offers to pods.
	Allocatable Resources
	// Generation changes whenever any other field does. Generations of different nodes of one ledger
	// differ.
	Generation uint64
}

// Snapshot is a copy of the nodes of a ledger. Make an empty one with NewSnapshot and bring it up to date
// with [Ledger.UpdateSnapshot]; between two such calls it does not change. It is not synchronized.
type Snapshot struct {
	ledger     *Ledger
	generation uint64
	// treeVersion is that of the tree from which nodes was built.
	treeVersion uint64
	nodes       []*NodeState
	byName      map[string]*NodeState
}

// NewSnapshot returns a snapshot without nodes.
func NewSnapshot() *Snapshot {
	return &Snapshot{byName: map[string]*NodeState{}}
}

// Nodes returns the nodes zone by zone, round-robin. The caller must not change the slice nor what it
// points to, and the next UpdateSnapshot changes both.
func (s *Snapshot) Nodes() []*NodeState { return s.nodes }

// Node returns the node of that name, or nil.
func (s *Snapshot) Node(name string) *NodeState { return s.byName[name] }

// UpdateSnapshot brings a snapshot up to date and returns how many of its nodes changed or are new. It
// visits the nodes from the most recently changed one down to the snapshot's generation, so that its cost
// is that of the changes; if nodes came, went or moved to another zone, the order of all is rebuilt.
//
// A snapshot that was taken from another ledger is replaced.
func (l *Ledger) UpdateSnapshot(s *Snapshot) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.ledger != l {
		*s = Snapshot{ledger: l, byName: make(map[string]*NodeState, len(l.nodes))}
	}
	changed := 0
	for n := l.newest; n != nil && n.generation > s.generation; n = n.older {
		if n.ghost() {
			continue
		}
		state := s.byName[n.name]
		if state == nil {
			state = &NodeState{}
			s.byName[n.name] = state
		}
		n.copyTo(state)
		changed++
	}
	s.generation = l.generation
	if s.treeVersion != l.tree.version {
		l.orderLocked(s)
	}
	return changed
}

// Generation returns that of the last change.
func (l *Ledger) Generation() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.generation
}

// orderLocked rebuilds the order of a snapshot's nodes and drops those that are gone.
func (l *Ledger) orderLocked(s *Snapshot) {
	clear(s.nodes)
	s.nodes = slices.Grow(s.nodes[:0], l.tree.size)
	l.tree.each(func(n *node) {
		s.nodes = append(s.nodes, s.byName[n.name])
	})
	if len(s.byName) > len(s.nodes) {
		for name := range s.byName {
			if n := l.nodes[name]; n == nil || n.ghost() {
				delete(s.byName, name)
			}
		}
	}
	s.treeVersion = l.tree.version
}

// copyTo overwrites a state with the node's and reuses the state's memory.
func (n *node) copyTo(state *NodeState) {
	state.Node = n.object
	state.Generation = n.generation
	n.requested.copyTo(&state.Requested)
	n.allocatable.copyTo(&state.Allocatable)
	clear(state.Pods)
	state.Pods = slices.Grow(state.Pods[:0], len(n.pods))
	for _, p := range n.pods {
		state.Pods = append(state.Pods, p.object)
	}
}

// Requests returns what a pod of the snapshot asks for.
func (s *Snapshot) Requests(pod *v1.Pod) Resources { return s.ledger.Requests(pod) }
