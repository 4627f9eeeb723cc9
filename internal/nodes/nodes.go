// Package nodes answers what several packages ask of a node.
package nodes

import v1 "k8s.io/api/core/v1"

// Ready reports whether the node's condition Ready is True.
func Ready(node *v1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// Usable reports whether the node is ready and not cordoned.
func Usable(node *v1.Node) bool { return !node.Spec.Unschedulable && Ready(node) }
