package world

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/cli/snapshot"
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
		d := &s.Deployments[i]
		replicas := ptr.Deref(d.Spec.Replicas, 1)
		w.add(&workload{
			kind: "Deployment", namespace: d.Namespace, name: d.Name, uid: d.UID,
			owner: policy.Owner{TemplateLabels: d.Spec.Template.Labels, Replicas: int64(replicas), ReplaceFirst: replacesFirst(d, replicas)},
		})
	}
	for i := range s.StatefulSets {
		o := &s.StatefulSets[i]
		w.add(&workload{
			kind: "StatefulSet", namespace: o.Namespace, name: o.Name, uid: o.UID,
			owner: policy.Owner{TemplateLabels: o.Spec.Template.Labels, Replicas: int64(ptr.Deref(o.Spec.Replicas, 1))},
		})
	}
	for i := range s.Jobs {
		o := &s.Jobs[i]
		w.add(&workload{
			kind: "Job", namespace: o.Namespace, name: o.Name, uid: o.UID,
			owner: policy.Owner{TemplateLabels: o.Spec.Template.Labels, Replicas: jobReplicas(o)},
		})
	}
	for i := range s.ReplicaSets {
		o := &s.ReplicaSets[i]
		set := &workload{
			kind: "ReplicaSet", namespace: o.Namespace, name: o.Name, uid: o.UID,
			owner: policy.Owner{TemplateLabels: o.Spec.Template.Labels, Replicas: int64(ptr.Deref(o.Spec.Replicas, 1))},
		}
		if over := controllerOf(o); over != nil {
			set.over = over.UID
		}
		w.add(set)
	}
	for i := range s.ReplicationControllers {
		o := &s.ReplicationControllers[i]
		template := ptr.Deref(o.Spec.Template, corev1.PodTemplateSpec{})
		w.add(&workload{
			kind: "ReplicationController", namespace: o.Namespace, name: o.Name, uid: o.UID,
			owner: policy.Owner{TemplateLabels: template.Labels, Replicas: int64(ptr.Deref(o.Spec.Replicas, 1))},
		})
	}
	return w
}

func (w *workloads) add(o *workload) {
	o.owner.UID = o.uid
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

// replacesFirst tells whether a rolling update takes no old pod away before a new one is ready.
func replacesFirst(d *appsv1.Deployment, replicas int32) bool {
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return false
	}
	quarter := intstr.FromString("25%")
	unavailable, surge := &quarter, &quarter
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		unavailable, surge = ptr.To(ptr.Deref(r.MaxUnavailable, quarter)), ptr.To(ptr.Deref(r.MaxSurge, quarter))
	}
	down, err1 := intstr.GetScaledValueFromIntOrPercent(unavailable, int(replicas), false)
	up, err2 := intstr.GetScaledValueFromIntOrPercent(surge, int(replicas), true)
	return err1 == nil && err2 == nil && down == 0 && up > 0
}

// jobReplicas is how many pods a Job wants now.
func jobReplicas(job *batchv1.Job) int64 {
	if ptr.Deref(job.Spec.Suspend, false) || job.Status.CompletionTime != nil {
		return 0
	}
	wanted := int64(ptr.Deref(job.Spec.Parallelism, 1))
	if job.Spec.Completions != nil {
		wanted = min(wanted, int64(*job.Spec.Completions-job.Status.Succeeded))
	}
	return max(0, wanted)
}
