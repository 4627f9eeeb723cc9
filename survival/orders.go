package survival

import (
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"

	"zonewise.dev/apis/v1alpha1"
)

// latecomers are the pods that ZoneSpreadPolicies select. When a zone fails, they wait until their policy calls it
// unavailable, and by then all others have taken their room.
func latecomers(policies []*v1alpha1.ZoneSpreadPolicy) selection {
	out := selection{}
	for _, p := range policies {
		_ = out.addSelector(p.Namespace, &p.Spec.PodSelector) // an invalid one selects nothing
	}
	return out
}

// worstRank ranks lost pods so that they are replaced in the order that leaves protected pods the least room: pods that
// are not protected come first, latecomers last, those of a low priority, which take room that is free and leave others
// that of slots and victims, before those of a high one, and small pods, which leave room for large ones scattered,
// before large ones.
func worstRank(late selection, protects func(pod *v1.Pod) bool) func(pod *v1.Pod) []int64 {
	return func(pod *v1.Pod) []int64 {
		requests := requestsOf(pod)
		return []int64{
			rankLastIf(protects(pod)), rankLastIf(late.selects(pod)), int64(schedulingv1.PodPriority(pod)),
			requests.Cpu().MilliValue(), requests.Memory().Value(),
		}
	}
}

// rankLastIf is the rank of what comes last if a condition holds, and first otherwise.
func rankLastIf(condition bool) int64 {
	if condition {
		return 1
	}
	return 0
}
