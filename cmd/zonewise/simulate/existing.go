package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/pods"
)

// This file has what the cluster has already of the objects of a file.

// existing finds objects of the cluster.
type existing struct {
	objects map[string]client.Object
	pods    map[types.UID][]*corev1.Pod // by their controllers
}

func newExisting(s *snapshot.Snapshot) *existing {
	e := &existing{objects: map[string]client.Object{}, pods: map[types.UID][]*corev1.Pod{}}
	for _, obj := range s.Objects() {
		e.objects[placeOf(obj)] = obj
		pod, ok := obj.(*corev1.Pod)
		if !ok || !pods.Live(pod) {
			continue
		}
		if owner := metav1.GetControllerOf(pod); owner != nil {
			e.pods[owner.UID] = append(e.pods[owner.UID], pod)
		}
	}
	return e
}

func placeOf(obj client.Object) string {
	return fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName())
}

// findLike returns the cluster's object of this kind and name, nil if it has none.
func (e *existing) findLike(obj client.Object) client.Object { return e.objects[placeOf(obj)] }

func (e *existing) podsOf(obj client.Object) []*corev1.Pod { return slices.Clone(e.pods[obj.GetUID()]) }

// setsOf returns the ReplicaSets of a Deployment, the one of its template first: that is the youngest that has pods.
func (e *existing) setsOf(d *appsv1.Deployment) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for _, obj := range e.objects {
		if set, ok := obj.(*appsv1.ReplicaSet); ok && metav1.IsControlledBy(set, d) {
			out = append(out, set)
		}
	}
	slices.SortFunc(out, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(podlessLast(e.pods[a.UID]), podlessLast(e.pods[b.UID])), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func podlessLast(pods []*corev1.Pod) int {
	if len(pods) == 0 {
		return 1
	}
	return 0
}

// putObject adds an object, or changes the cluster's own to it. What cannot be changed stays as it is.
func (p *parser) putObject(obj client.Object) {
	now := p.cluster.findLike(obj)
	if now == nil {
		obj.SetGeneration(max(1, obj.GetGeneration()))
		p.workload.others = append(p.workload.others, obj)
		return
	}
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim, *corev1.PersistentVolume, *storagev1.StorageClass:
		return
	case *corev1.Namespace:
		labels := maps.Clone(now.GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, o.Labels)
		o.Labels = labels
	}
	snapshot.Trim(obj)
	obj.SetUID(now.GetUID())
	obj.SetCreationTimestamp(now.GetCreationTimestamp())
	obj.SetOwnerReferences(now.GetOwnerReferences())
	status, have := reflect.ValueOf(obj).Elem().FieldByName("Status"), reflect.ValueOf(now).Elem().FieldByName("Status")
	if have.IsValid() {
		status.Set(have)
	}
	obj.SetResourceVersion(now.GetResourceVersion())
	obj.SetGeneration(now.GetGeneration())
	if equality.Semantic.DeepEqual(obj, now) {
		return
	}
	obj.SetGeneration(now.GetGeneration() + 1)
	obj.SetResourceVersion("")
	p.workload.changed = append(p.workload.changed, obj)
}

// templateOf returns the template and the size of a workload.
func templateOf(obj client.Object) (*corev1.PodTemplateSpec, *int32) {
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, o.Spec.Replicas
	case *appsv1.StatefulSet:
		return &o.Spec.Template, o.Spec.Replicas
	case *corev1.ReplicationController:
		return o.Spec.Template, o.Spec.Replicas
	}
	return nil, nil
}

// sameTemplate reports whether pods of both templates are alike to a scheduler. Images are not compared: a snapshot has
// no names of images.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(schedulable(a), schedulable(b))
}

func schedulable(t *corev1.PodTemplateSpec) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations)}, Spec: *t.Spec.DeepCopy()}
	delete(pod.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	snapshot.Trim(pod)
	apiv1.SetObjectDefaults_Pod(pod)
	pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = "", ""
	pod.Spec.SecurityContext = nil
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			containers[i].Image, containers[i].ImagePullPolicy = "", ""
		}
	}
	return pod
}

func namesOf(pods []*corev1.Pod) []string {
	var out []string
	for _, pod := range pods {
		out = append(out, pod.Name)
	}
	return out
}

// firstToGo orders pods as their controllers delete them: a StatefulSet from the highest number on, others as
// upstream's ReplicaSet controller ranks them (getPodsToDelete).
func firstToGo(all []*corev1.Pod, ordered bool, now time.Time) []*corev1.Pod {
	out := slices.Clone(all)
	if ordered {
		number := func(pod *corev1.Pod) int {
			n, _ := strconv.Atoi(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:]) // a StatefulSet's pods have one
			return n
		}
		slices.SortFunc(out, func(a, b *corev1.Pod) int { return cmp.Compare(number(b), number(a)) })
		return out
	}
	onNode := map[string]int{}
	for _, pod := range all {
		onNode[pod.Spec.NodeName]++
	}
	ranks := make([]int, len(out))
	for i, pod := range out {
		ranks[i] = onNode[pod.Spec.NodeName]
	}
	sort.Sort(controller.ActivePodsWithRanks{Pods: out, Rank: ranks, Now: metav1.NewTime(now)})
	return out
}
