package permitgate

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// Name is the name of the plugin in the registry and in KubeSchedulerConfiguration.
const Name = "PermitGate"

// gangOf returns the key of the gang that a pod belongs to, and false for a pod that is in none: one
// without the label, and one that belongs to a native pod group, whose scheduling is upstream's.
func gangOf(pod *v1.Pod) (types.NamespacedName, bool) {
	name := pod.Labels[v1alpha1.PodGroupLabel]
	if name == "" || pod.Spec.SchedulingGroup != nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: name}, true
}

// keyOf returns the key of a namespaced object.
func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// isLive reports whether a pod counts as a member: it neither terminates nor has it finished.
func isLive(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

// nominee is a pod as the framework's nominator takes it, of which it needs no more than the pod.
type nominee struct {
	fwk.PodInfo
	pod *v1.Pod
}

// GetPod implements fwk.PodInfo.
func (n nominee) GetPod() *v1.Pod { return n.pod }
