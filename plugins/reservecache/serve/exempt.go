package serve

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
)

// systemCriticalPriority is the lowest priority of the pods that a cluster needs to work: that of the class
// system-cluster-critical.
const systemCriticalPriority int32 = 2_000_000_000

// IgnoresSlots reports whether slots do not keep the pod off: pods of DaemonSets belong to their node, and what is
// critical to the system comes before any promise. Such a pod belongs to no reservation.
func IgnoresSlots(pod *v1.Pod) bool {
	return schedulingv1.PodPriority(pod) >= systemCriticalPriority || ofDaemonSet(pod) && pinned(pod)
}

// pinned reports whether a pod may run on one node only, as the DaemonSet controller pins it: every term of its
// required node affinity names that node. An owner reference proves nothing, since the creator of the pod writes it.
// The creator also writes this, but such a pod bypasses the slots of only one node.
func pinned(pod *v1.Pod) bool {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		if !slices.ContainsFunc(terms[i].MatchFields, func(r v1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && r.Operator == v1.NodeSelectorOpIn && len(r.Values) == 1
		}) {
			return false
		}
	}
	return len(terms) > 0
}

// ofDaemonSet reports whether a pod is one of a DaemonSet.
func ofDaemonSet(pod *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == "apps/v1"
}
