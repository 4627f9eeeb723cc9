package survival

import (
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
)

// form is how nodes are lost.
type form int

const (
	// nodesGone: the Node objects are deleted at once, with their pods.
	nodesGone form = iota
	// nodesStay: the Node objects are not ready and have the taint unreachable, and their pods are evicted, as in an
	// outage until the objects are deleted. To what counts nodes, such as a spread constraint that ignores taints, they
	// are still there.
	nodesStay
	forms
)

// loss is what is lost at once: a zone, or a node.
type loss struct{ zone, node string }

// lossOf returns the loss that a status says something of.
func lossOf(l *v1alpha1.SurvivalLoss) loss { return loss{zone: l.Zone, node: l.Node} }

func (l loss) String() string {
	if l.node != "" {
		return "node " + l.node
	}
	return "zone " + l.zone
}

// during says when something is so that is so of a form alone.
func (l loss) during(f form) string {
	switch {
	case f == nodesGone:
		return "without " + l.String()
	case l.node != "":
		return "while the object of node " + l.node + " still exists"
	}
	return "while the nodes of zone " + l.zone + " still exist"
}

// includes reports whether a node is lost.
func (l loss) includes(node *v1.Node) bool {
	if l.node != "" {
		return node.Name == l.node
	}
	return node.Labels[v1.LabelTopologyZone] == l.zone
}
