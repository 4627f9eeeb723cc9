package survival

import (
	"cmp"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type controllerKey struct{ namespace, kind, name string }

// controllers are those that say how many pods they want, and the ReplicaSets of Deployments.
type controllers map[controllerKey]client.Object

// add adds an object that is one of them.
func (c controllers) add(obj client.Object) {
	var kind string
	switch obj.(type) {
	case *appsv1.Deployment:
		kind = "Deployment"
	case *appsv1.ReplicaSet:
		kind = "ReplicaSet"
	case *appsv1.StatefulSet:
		kind = "StatefulSet"
	case *v1.ReplicationController:
		kind = "ReplicationController"
	default:
		return
	}
	c[controllerKey{obj.GetNamespace(), kind, obj.GetName()}] = obj
}

// top returns the key of the object at the top of a pod's controllers, and how many pods that wants; known is false if
// it does not say.
func (c controllers) top(pod *v1.Pod) (key controllerKey, replicas int, known bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return controllerKey{pod.Namespace, "Pod", pod.Name}, 1, true
	}
	key = controllerKey{pod.Namespace, owner.Kind, owner.Name}
	obj := c[key]
	if set, ok := obj.(*appsv1.ReplicaSet); ok {
		if above := metav1.GetControllerOf(set); above != nil {
			key = controllerKey{pod.Namespace, above.Kind, above.Name}
			obj = c[key]
		}
	}
	var wanted *int32
	switch o := obj.(type) {
	case *appsv1.Deployment:
		wanted = o.Spec.Replicas
	case *appsv1.ReplicaSet:
		wanted = o.Spec.Replicas
	case *appsv1.StatefulSet:
		wanted = o.Spec.Replicas
	case *v1.ReplicationController:
		wanted = o.Spec.Replicas
	default:
		return key, 0, false
	}
	return key, int(ptr.Deref(wanted, 1)), true
}

// workload is the pods of one controller.
type workload struct {
	controllerKey
	replicas int // that it wants
	pods     []*v1.Pod
}

// workloadsOf returns the workloads of live pods in the order of their names. One that does not say how many pods it
// wants wants those that are there.
func (c controllers) workloadsOf(pods []*v1.Pod) []*workload {
	found := map[controllerKey]*workload{}
	for _, pod := range pods {
		key, replicas, known := c.top(pod)
		w := found[key]
		if w == nil {
			w = &workload{controllerKey: key}
			found[key] = w
		}
		w.pods = append(w.pods, pod)
		w.replicas = len(w.pods)
		if known {
			w.replicas = replicas
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *workload) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
}
