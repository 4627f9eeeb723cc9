package world

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/plugins/zonespread/policy"
)

// workload is a controller of pods.
type workload struct {
	kind, namespace, name string
	uid                   types.UID
	over                  types.UID // its own controller
	owner                 policy.Owner
}

// workloads are the controllers of a cluster, by UID.
type workloads struct {
	byUID       map[types.UID]*workload
	byNamespace map[string][]*workload
}

func newWorkloads(s *snapshot.Snapshot) *workloads {
	w := &workloads{byUID: map[types.UID]*workload{}, byNamespace: map[string][]*workload{}}
	for i := range s.Deployments {
		w.take("Deployment", &s.Deployments[i])
	}
	for i := range s.StatefulSets {
		w.take("StatefulSet", &s.StatefulSets[i])
	}
	for i := range s.Jobs {
		w.take("Job", &s.Jobs[i])
	}
	for i := range s.ReplicaSets {
		w.take("ReplicaSet", &s.ReplicaSets[i])
	}
	for i := range s.ReplicationControllers {
		w.take("ReplicationController", &s.ReplicationControllers[i])
	}
	return w
}

// take adds a workload as the scheduler understands it.
func (w *workloads) take(kind string, object metav1.Object) {
	owner, _ := policy.OwnerOf(object)
	o := &workload{kind: kind, namespace: object.GetNamespace(), name: object.GetName(), uid: object.GetUID(), owner: owner}
	if over := controllerOf(object); over != nil && kind == "ReplicaSet" {
		o.over = over.UID
	}
	w.add(o)
}

func (w *workloads) add(o *workload) {
	w.byUID[o.uid] = o
	w.byNamespace[o.namespace] = append(w.byNamespace[o.namespace], o)
}

// top returns the workload at the top of a pod's controllers, nil when it is not known.
func (w *workloads) top(pod *corev1.Pod) *workload {
	over := controllerOf(pod)
	if over == nil {
		return nil
	}
	o := w.byUID[over.UID]
	if o != nil && o.over != "" {
		if top := w.byUID[o.over]; top != nil {
			return top
		}
	}
	return o
}

// Workload names what a pod belongs to, as in "Deployment shop/web": its top-level workload, the controller that
// its owner reference names, or the pod itself.
func (w *World) Workload(pod *corev1.Pod) string {
	if o := w.workloads.top(pod); o != nil {
		return o.kind + " " + o.namespace + "/" + o.name
	}
	if over := controllerOf(pod); over != nil {
		return over.Kind + " " + pod.Namespace + "/" + over.Name
	}
	return "Pod " + pod.Namespace + "/" + pod.Name
}

// demand returns how many pods a policy's workloads want.
func (w *World) demand(p *Policy) policy.Demand {
	namespace := p.Compiled.Namespace()
	owning := map[types.UID]bool{}
	var d policy.Demand
	for _, pod := range w.selected(p) {
		d.Matching++
		if top := w.workloads.top(pod.Object); top != nil {
			owning[top.uid] = true
		} else {
			d.Unowned++
		}
	}
	for _, o := range w.workloads.byNamespace[namespace] {
		if o.over != "" && w.workloads.byUID[o.over] != nil {
			continue
		}
		owner := o.owner
		owner.OwnsSelected = owning[o.uid]
		d.Owners = append(d.Owners, owner)
	}
	return d
}
