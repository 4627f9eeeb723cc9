package native

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The types of the conditions of PodGroups.
const (
	// ConditionFits is False while the gang cannot be placed, with the reason; True once it has been placed after that.
	ConditionFits = "zonewise.dev/Fits"
	// ConditionPacked is False while the PodGroup's annotation of how to pack the gang does not apply.
	ConditionPacked = "zonewise.dev/Packed"
	// ConditionReleased is True when minCount members have been bound together, False since a rollback.
	ConditionReleased = "zonewise.dev/Released"
	// ConditionPartlyBound is True while the gang stays bound in part.
	ConditionPartlyBound = "zonewise.dev/PartlyBound"
	// ConditionGuarded is False for a PodGroup of which something is not guarded: it is part of a composite group, or has claims that members share.
	ConditionGuarded = "zonewise.dev/Guarded"
)

// GroupOf returns the key of a pod's native group.
func GroupOf(pod *v1.Pod) (types.NamespacedName, bool) {
	group := pod.Spec.SchedulingGroup
	if group == nil || group.PodGroupName == nil || *group.PodGroupName == "" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: *group.PodGroupName}, true
}
