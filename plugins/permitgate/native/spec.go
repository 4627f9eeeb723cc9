package native

import (
	"strconv"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"zonewise.dev/plugins/permitgate/gang"
)

// Feature is kube-scheduler's gate for pod groups.
const Feature = "GenericWorkload"

// Mode says what becomes of native gangs.
type Mode string

// The modes.
const (
	// Guard: they bind whole or not at all.
	Guard Mode = "Guard"
	// Ignore: they are left to kube-scheduler.
	Ignore Mode = "Ignore"
)

// SpecOf returns what a PodGroup asks for. guarded is false if it is not a gang, or part of a composite group, whose members depend on
// those of other PodGroups.
func SpecOf(group *schedulingv1beta1.PodGroup) (spec gang.Spec, guarded bool) {
	policy := group.Spec.SchedulingPolicy.Gang
	if policy == nil || composite(group) {
		return gang.Spec{}, false
	}
	return gang.Spec{
		UID: group.UID, MinMember: int(policy.MinCount),
		Revision: strconv.FormatInt(group.Generation, 10),
	}, true
}

// composite reports whether a PodGroup is part of a composite group.
func composite(group *schedulingv1beta1.PodGroup) bool {
	return group.Spec.ParentCompositePodGroupName != nil
}
