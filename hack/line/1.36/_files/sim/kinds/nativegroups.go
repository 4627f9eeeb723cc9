package kinds

import (
	"slices"

	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NativePodGroup is the PodGroup of scheduling.k8s.io. In 1.36 it is alpha, and copies do not have it.
type NativePodGroup = schedulingv1alpha2.PodGroup

// NativePodGroups is the resource name of the kind.
const NativePodGroups = "podgroups.scheduling.k8s.io"

// nativePodGroups returns nothing.
func nativePodGroups() []client.Object { return nil }

// ConditionsOf returns the conditions of a group without their times.
func ConditionsOf(group *NativePodGroup) []metav1.Condition {
	if group == nil {
		return nil
	}
	out := slices.Clone(group.Status.Conditions)
	for i := range out {
		out[i].LastTransitionTime = metav1.Time{}
	}
	return out
}
