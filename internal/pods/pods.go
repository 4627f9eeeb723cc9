// Package pods answers what several packages ask of a pod.
package pods

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

// Ended reports whether the pod has succeeded or failed: it runs no more, and takes nothing from its node.
func Ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// Live reports whether the pod is neither terminating nor ended.
func Live(pod *v1.Pod) bool { return pod.DeletionTimestamp == nil && !Ended(pod) }

// ControllerUID returns the UID of the pod's controller; empty without one.
func ControllerUID(pod *v1.Pod) types.UID {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.UID
	}
	return ""
}

// Ready reports whether the pod's condition Ready is True.
func Ready(pod *v1.Pod) bool {
	c := Condition(pod, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}

// Condition returns a condition of the pod, nil if there is none of that type.
func Condition(pod *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// SpreadConstraints returns the pod's topologySpreadConstraints without the one that only shows a policy to
// autoscalers.
func SpreadConstraints(pod *v1.Pod) []v1.TopologySpreadConstraint {
	key, shown := pod.Annotations[v1alpha1.ShownToAutoscalersAnnotation]
	if !shown {
		return pod.Spec.TopologySpreadConstraints
	}
	return slices.DeleteFunc(slices.Clone(pod.Spec.TopologySpreadConstraints), func(c v1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == v1.ScheduleAnyway && c.TopologyKey == key
	})
}
