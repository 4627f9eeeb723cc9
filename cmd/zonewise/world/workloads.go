package world

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/plugins/zonespread/policy"
)

// workload is a controller of pods.
type workload struct {
	kind, namespace, name string
	uid                   types.UID
	over                  types.UID // its own controller
	owner                 policy.Workload
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
	owner, _ := policy.WorkloadOf(object)
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

// workloadOf returns the workload of a pod as policies know it.
func (w *World) workloadOf(pod *corev1.Pod) policy.Workload {
	if top := w.workloads.top(pod); top != nil {
		return top.owner
	}
	return policy.Workload{}
}

// observe returns the placed pods of a policy and their workloads.
func (w *World) observe(p *Policy) policy.Observation {
	o := policy.Observation{Tally: p.Compiled.NewTally()}
	at := map[types.UID]int{}
	for _, pod := range w.selected(p) {
		owner := w.workloadOf(pod.Object)
		if owner.UID == "" {
			o.Unowned++
		} else {
			i, known := at[owner.UID]
			if !known {
				i = len(o.Workloads)
				at[owner.UID] = i
				o.Workloads = append(o.Workloads, policy.OwnedPods{Workload: owner})
			}
			o.Workloads[i].Live++
		}
		zone := ""
		if pod.Node != nil {
			zone, _ = domain(pod.Node, p.Compiled.TopologyKey())
		}
		podLabels := labels.Set(pod.Object.Labels)
		o.Tally.Add(owner.UID, p.Compiled.Revision(podLabels), podLabels[p.Compiled.GroupBy()], zone)
	}
	return o
}
