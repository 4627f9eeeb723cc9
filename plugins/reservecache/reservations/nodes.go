package reservations

import (
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// TellsOfSlots tells whether the change of a node may change which slots it can have. Heartbeats do not.
func TellsOfSlots(was, is *v1.Node) bool {
	return was.UID != is.UID ||
		was.Spec.Unschedulable != is.Spec.Unschedulable ||
		(was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil) ||
		ready(was) != ready(is) ||
		!apiequality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) ||
		!apiequality.Semantic.DeepEqual(was.Labels, is.Labels) ||
		!apiequality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable)
}

// ready returns the status of a node's condition Ready.
func ready(node *v1.Node) v1.ConditionStatus {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return v1.ConditionUnknown
}
