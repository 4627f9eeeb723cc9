package census

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/apis/v1alpha1"
)

// SelectedBy reports whether a policy selects a pod. An invalid selector selects none.
func SelectedBy(p *v1alpha1.ZoneSpreadPolicy, pod *v1.Pod) bool {
	return p.Namespace == pod.Namespace && matches(&p.Spec.PodSelector, pod)
}

// OwnedBy reports whether a pod may use the slots of a reservation. An invalid selector selects none.
func OwnedBy(r *v1alpha1.ZoneReservation, pod *v1.Pod) bool {
	return slices.ContainsFunc(r.Spec.Owners, func(o v1alpha1.ReservationOwner) bool {
		return o.Namespace == pod.Namespace && matches(&o.PodSelector, pod)
	})
}

func matches(selector *metav1.LabelSelector, pod *v1.Pod) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(pod.Labels))
}
