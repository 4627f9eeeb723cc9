// Package podgroup reads what pods and PodGroups say about gangs: the gang of a pod, and what its PodGroup asks for. It
// reads the PodGroups of scheduling.x-k8s.io; those of scheduling.k8s.io are read by package native, into the same
// form. An invalid setting gives a complaint, which is a message for the PodGroup's owner, and the value that applies
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

// ID names a gang: two PodGroups, one of each API, may have one name. Native ones are of scheduling.k8s.io.
type ID struct {
	types.NamespacedName
	Native bool
}

// Of returns a pod's gang of scheduling.x-k8s.io. It returns false for a pod without the label, and for a pod of a
// native pod group, which upstream schedules.
func Of(pod *v1.Pod) (ID, bool) {
	name := pod.Labels[v1alpha1.PodGroupLabel]
	if name == "" || pod.Spec.SchedulingGroup != nil {
		return ID{}, false
	}
	return ID{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: name}}, true
}

// NativeOf returns a pod's native pod group.
func NativeOf(pod *v1.Pod) (ID, bool) {
	group := pod.Spec.SchedulingGroup
	if group == nil || group.PodGroupName == nil || *group.PodGroupName == "" {
		return ID{}, false
	}
	return ID{types.NamespacedName{Namespace: pod.Namespace, Name: *group.PodGroupName}, true}, true
}

// IDOf returns the gang of either API that a pod says it is a member of.
func IDOf(pod *v1.Pod) (ID, bool) {
	if id, ok := NativeOf(pod); ok {
		return id, true
	}
	return Of(pod)
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
	ID       ID
}

// Compare orders two gangs; negative means that r comes first.
func (r Rank) Compare(other Rank) int {
	return cmp.Or(
		cmp.Compare(other.Priority, r.Priority), r.Created.Compare(other.Created),
		cmp.Compare(r.ID.Namespace, other.ID.Namespace), cmp.Compare(r.ID.Name, other.ID.Name),
	)
}
