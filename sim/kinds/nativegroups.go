package kinds

import (
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NativePodGroup is the PodGroup of scheduling.k8s.io, of the version that the scheduler reads.
type NativePodGroup = schedulingv1beta1.PodGroup

// NativePodGroups is the resource name of the kind.
const NativePodGroups = "podgroups.scheduling.k8s.io"

// nativePodGroups returns an empty object of the kind.
func nativePodGroups() []client.Object { return []client.Object{&NativePodGroup{}} }

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
