package world

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/snapshot"
)

// Objects are workloads, policies and gangs that are not in the snapshot.
type Objects struct {
	Deployments            []appsv1.Deployment
	ReplicaSets            []appsv1.ReplicaSet
	StatefulSets           []appsv1.StatefulSet
	Jobs                   []batchv1.Job
	ReplicationControllers []corev1.ReplicationController
	Policies               []v1alpha1.ZoneSpreadPolicy
	PodGroups              []schedv1alpha1.PodGroup
}

// AddWorkload takes in workloads, policies and gangs. A policy takes the place of one of its name.
func (w *World) AddWorkload(o Objects) {
	added := newWorkloads(&snapshot.Snapshot{
		Deployments: o.Deployments, ReplicaSets: o.ReplicaSets, StatefulSets: o.StatefulSets, Jobs: o.Jobs, ReplicationControllers: o.ReplicationControllers,
	})
	for _, workload := range added.byUID {
		w.workloads.add(workload)
	}
	for i := range o.Policies {
		object := &o.Policies[i]
		for k, p := range w.policies {
			if p.Object.Namespace == object.Namespace && p.Object.Name == object.Name {
				w.policies = append(w.policies[:k:k], w.policies[k+1:]...)
				break
			}
		}
		w.AddPolicy(object)
	}
	for i := range o.PodGroups {
		w.addGroup(&o.PodGroups[i])
	}
	clear(w.classes)
}
