package framework

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// deployment is a Deployment of pods with the app as a label.
func deployment(app string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app, UID: types.UID("deployment-" + app), Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": app}},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": app, "app": "web"}}},
		},
	}
}

// revision is a ReplicaSet of a Deployment, as its controller makes it.
func revision(d *appsv1.Deployment, hash string, replicas int32) *appsv1.ReplicaSet {
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels["pod-template-hash"] = hash
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, UID: types.UID("set-" + d.Name + "-" + hash),
			Annotations:     map[string]string{"deployment.kubernetes.io/desired-replicas": fmt.Sprint(*d.Spec.Replicas)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: ptr.To(true)}},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector},
	}
}

// ofSet makes a pod one of a ReplicaSet.
func ofSet(set *appsv1.ReplicaSet) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		maps.Copy(pod.Labels, set.Spec.Selector.MatchLabels)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: ptr.To(true)}}
	}
}
