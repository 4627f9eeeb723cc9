// Package podgroup reads what pods and PodGroups say about gangs: which gang a pod is of, and what its PodGroup asks for.
// What a PodGroup asks for in a wrong way is returned as a complaint, in words for its owner, beside what is done
// instead.
package podgroup

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// Of returns the key of the gang that a pod belongs to, and false for a pod that is in none: one
// without the label, and one that belongs to a native pod group, whose scheduling is upstream's.
func Of(pod *v1.Pod) (types.NamespacedName, bool) {
	name := pod.Labels[v1alpha1.PodGroupLabel]
	if name == "" || pod.Spec.SchedulingGroup != nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: name}, true
}

// Key returns the key of a namespaced object.
func Key(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Live reports whether a pod counts as a member: it neither terminates nor has it finished.
func Live(pod *v1.Pod) bool { return pod.DeletionTimestamp == nil && !Finished(pod) }

// Finished reports whether a pod has succeeded or failed.
func Finished(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}
