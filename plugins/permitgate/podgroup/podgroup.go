// Package podgroup reads what pods and PodGroups say about gangs: the gang of a pod, and the settings of its PodGroup.
// An invalid setting gives a complaint, which is a message for the PodGroup's owner, and the value that applies
// instead.
package podgroup

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// Of returns the key of a pod's gang. It returns false for a pod without the label, and for a pod of a native
// pod group, which upstream schedules.
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

// Rank orders gangs: by priority, then by the PodGroup's creation, so that younger gangs do not overtake an old large
// one for ever.
type Rank struct {
	Priority int32
	Created  time.Time
	Key      types.NamespacedName
}

// Compare orders two gangs; negative means that r comes first.
func (r Rank) Compare(other Rank) int {
	return cmp.Or(
		cmp.Compare(other.Priority, r.Priority), r.Created.Compare(other.Created),
		cmp.Compare(r.Key.Namespace, other.Key.Namespace), cmp.Compare(r.Key.Name, other.Key.Name),
	)
}
