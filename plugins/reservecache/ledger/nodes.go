package ledger

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/node/topology"
)

// node is the ledger's record of a node that exists or that pods are still accounted to.
type node struct {
	name string
	// object is nil for a ghost.
	object *v1.Node
	// zone is the key of the node's zone; empty for a ghost and for a node without zone labels.
	zone        string
	allocatable Resources
	requested   Resources
	pods        []*pod
	// generation is that of the last change.
	generation uint64
	// newer and older link the nodes in the order of their last change.
	newer, older *node
}

// ghost reports whether the node is gone, or not there yet, and only its pods keep it in the ledger.
func (n *node) ghost() bool { return n.object == nil }

// AddNode records a node, or a newer version of one. A ghost of that name comes back with its pods. A version that
// differs in nothing that matters to where pods may go, such as a heartbeat, is taken in without a new generation. It
// reports whether there was more to it.
func (l *Ledger) AddNode(object *v1.Node) bool {
	allocatable := ResourcesOf(object.Status.Allocatable)
	zone := topology.GetZoneKey(object)

	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[object.Name]
	if n != nil && !n.ghost() {
		if SameForPods(n.object, object) && n.allocatable.Equal(&allocatable) {
			n.object = object
			return false
		}
	}
	switch {
	case n == nil:
		n = l.newNodeLocked(object.Name)
		l.tree.add(n, zone)
	case n.ghost():
		l.ghosts--
		l.tree.add(n, zone)
	case n.zone != zone:
		l.tree.remove(n)
		l.tree.add(n, zone)
	}
	n.object, n.allocatable = object, allocatable
	l.touchLocked(n)
	return true
}

// UpdateNode records a newer version of a node. It is AddNode: a node whose Add was missed is added.
func (l *Ledger) UpdateNode(object *v1.Node) bool { return l.AddNode(object) }

// SameForPods reports whether two versions of a node, their allocatable resources aside, take the same pods.
func SameForPods(a, b *v1.Node) bool {
	return a.UID == b.UID && a.Spec.Unschedulable == b.Spec.Unschedulable &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && Ready(a) == Ready(b) &&
		maps.Equal(a.Labels, b.Labels) && apiequality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints)
}

// Ready returns the status of a node's condition Ready; empty for a node that has none, as in tests.
func Ready(node *v1.Node) v1.ConditionStatus {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// Unready reports whether a node's Ready condition is False or Unknown. A node without the condition counts as ready.
func Unready(node *v1.Node) bool {
	status := Ready(node)
	return status != "" && status != v1.ConditionTrue
}

// RemoveNode records that a node is gone. If pods are accounted to it, it stays as a ghost until they are
// gone. It reports whether the node was there. If the ledger has another node of the same name with
// another UID, that one stays.
func (l *Ledger) RemoveNode(object *v1.Node) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[object.Name]
	if n == nil || n.ghost() || n.object.UID != object.UID {
		return false
	}
	l.tree.remove(n)
	n.object, n.allocatable = nil, Resources{}
	if len(n.pods) == 0 {
		l.generation++ // of no node that is left
		l.dropNodeLocked(n)
		return true
	}
	l.ghosts++
	l.touchLocked(n)
	return true
}

// newNodeLocked makes the record of a node. It is a ghost, which the caller counts, until it gets its
// object.
func (l *Ledger) newNodeLocked(name string) *node {
	n := &node{name: name}
	l.nodes[name] = n
	return n
}

// dropNodeLocked takes a node without pods out of the ledger.
func (l *Ledger) dropNodeLocked(n *node) {
	l.unlinkLocked(n)
	delete(l.nodes, n.name)
}

// touchLocked gives a changed node the next generation and the first place in the order of changes.
func (l *Ledger) touchLocked(n *node) {
	l.generation++
	n.generation = l.generation
	if l.newest == n {
		return
	}
	l.unlinkLocked(n)
	n.older = l.newest
	if l.newest != nil {
		l.newest.newer = n
	}
	l.newest = n
}

// unlinkLocked takes a node out of the order of changes, if it is in it.
func (l *Ledger) unlinkLocked(n *node) {
	if n.newer != nil {
		n.newer.older = n.older
	}
	if n.older != nil {
		n.older.newer = n.newer
	}
	if l.newest == n {
		l.newest = n.older
	}
	n.newer, n.older = nil, nil
}
