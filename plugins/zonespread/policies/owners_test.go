package policies

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestDesiredReplicas adds up what top-level workloads want, and the pods of nobody.
func TestDesiredReplicas(t *testing.T) {
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	meta := func(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), OwnerReferences: owners}
	}
	objects := []runtime.Object{
		&appsv1.Deployment{ObjectMeta: meta("d"), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](100), Template: template}},
		// Its ReplicaSets, one of them still growing, count for nothing beside it.
		&appsv1.ReplicaSet{ObjectMeta: meta("d-1", controlledBy("Deployment", "d", "d")...), Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](7), Template: template}},
		&appsv1.ReplicaSet{ObjectMeta: meta("bare"), Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](20), Template: template}},
		// A ReplicaSet of something unknown: its pods count one each.
		&appsv1.ReplicaSet{ObjectMeta: meta("r-1", controlledBy("Rollout", "r", "r")...), Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](50), Template: template}},
		&appsv1.StatefulSet{ObjectMeta: meta("s"), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3000), Template: template}},
		&batchv1.Job{ObjectMeta: meta("j"), Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](10), Completions: ptr.To[int32](5), Template: template}, Status: batchv1.JobStatus{Succeeded: 1}},
		&v1.ReplicationController{ObjectMeta: meta("rc"), Spec: v1.ReplicationControllerSpec{Replicas: ptr.To[int32](50000), Template: &template}},
		// Not selected by its template, but by a pod of it.
		&appsv1.StatefulSet{ObjectMeta: meta("labels-added"), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](600000)}},
		&appsv1.StatefulSet{ObjectMeta: meta("other"), Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1)}},
	}
	w := newWorld(t, objects...)
	w.add(newPolicy("web"))
	w.add(newPolicy("matching", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.Replicas = ptr.To(intstr.FromString("Matching")) }))
	w.eventually("all owners are known", func() bool { return w.replicasOf("policy-web") == 53124 })

	for name, owner := range map[string][]metav1.OwnerReference{
		"of-d":             controlledBy("ReplicaSet", "d-1", "d-1"),
		"of-bare":          controlledBy("ReplicaSet", "bare", "bare"),
		"of-rollout":       controlledBy("ReplicaSet", "r-1", "r-1"),
		"of-nobody":        nil,
		"of-a-dead-set":    controlledBy("StatefulSet", "s", "an older one"),
		"of-job":           controlledBy("Job", "j", "j"),
		"of-a-machine":     controlledBy("Machine", "m", "m"),
		"of-labels-added":  controlledBy("StatefulSet", "labels-added", "labels-added"),
		"of-missing-set":   controlledBy("ReplicaSet", "none", "none"),
		"of-rc":            controlledBy("ReplicationController", "rc", "rc"),
		"of-missing-owner": controlledBy("Job", "none", "none"),
	} {
		pod := newPod(name, "")
		pod.OwnerReferences = owner
		w.createPod(pod)
	}
	// Six have no owner that is known: of rollout, nobody, a dead set, a machine, a missing set, a missing owner.
	w.eventually("the pods without an owner are counted", func() bool { return w.replicasOf("policy-web") == 653124+6 })
	w.eventually("Matching counts live pods", func() bool { return w.replicasOf("policy-matching") == 11 })

	// A pod that the informer has not shown yet counts for itself.
	w.Policies.mu.Lock()
	e := w.entries["policy-web"]
	d := w.demandLocked(e, newPod("new", ""))
	w.Policies.mu.Unlock()
	require.EqualValues(t, 7, d.Unowned)
	require.EqualValues(t, 12, d.Matching)

	require.NoError(t, w.client.AppsV1().StatefulSets("shop").Delete(t.Context(), "labels-added", metav1.DeleteOptions{}))
	w.eventually("a deleted owner is forgotten", func() bool { return w.replicasOf("policy-web") == 53124+7 })
	require.NoError(t, w.client.CoreV1().Pods("shop").Delete(t.Context(), "of-nobody", metav1.DeleteOptions{}))
	w.eventually("a deleted pod is forgotten", func() bool { return w.replicasOf("policy-web") == 53124+6 })
	job := objects[5].(*batchv1.Job).DeepCopy()
	job.Status.Succeeded = 5
	_, err := w.client.BatchV1().Jobs("shop").UpdateStatus(t.Context(), job, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("a Job that is done wants nothing", func() bool { return w.replicasOf("policy-web") == 53120+6 })
}

// TestOwnersConcernTheirPolicies: what is known of owners is asked again only after a change of one that matters.
func TestOwnersConcernTheirPolicies(t *testing.T) {
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	other := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "other"}}}
	meta := func(name string, generation int64, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Generation: generation, OwnerReferences: owners}
	}
	stranger := &appsv1.Deployment{ObjectMeta: meta("stranger", 1), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](5), Template: other}}
	orphan := &appsv1.ReplicaSet{ObjectMeta: meta("set", 1), Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](3), Template: template}}
	w := newWorld(t, stranger, orphan)
	w.add(newPolicy("web"))
	w.eventually("the set is known", func() bool { return w.replicasOf("policy-web") == 3 })
	w.settle()
	fresh := func() bool {
		w.Policies.mu.Lock()
		defer w.Policies.mu.Unlock()
		return w.entries["policy-web"].fresh
	}
	require.True(t, fresh())

	scaled := stranger.DeepCopy()
	scaled.Generation, scaled.Spec.Replicas = 2, ptr.To[int32](6)
	w.ownerUpdated(stranger, scaled)
	require.True(t, fresh(), "a Deployment of other pods")

	selected := scaled.DeepCopy()
	selected.Generation, selected.Spec.Template = 3, template
	_, err := w.client.AppsV1().Deployments("shop").Update(t.Context(), selected, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("a template that is selected now", func() bool { return w.replicasOf("policy-web") == 9 })
	back := selected.DeepCopy()
	back.Generation, back.Spec.Template = 4, other
	_, err = w.client.AppsV1().Deployments("shop").Update(t.Context(), back, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("a template that is not selected any more", func() bool { return w.replicasOf("policy-web") == 3 })

	// Adoption does not change the generation.
	adopted := orphan.DeepCopy()
	adopted.OwnerReferences = controlledBy("Deployment", "stranger", "stranger")
	_, err = w.client.AppsV1().ReplicaSets("shop").Update(t.Context(), adopted, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("a set that was adopted", func() bool { return w.replicasOf("policy-web") == 0 })
	pod := newPod("p", "")
	pod.OwnerReferences = controlledBy("ReplicaSet", "set", "set")
	w.createPod(pod)
	w.eventually("the owner behind the pod of the set", func() bool { return w.replicasOf("policy-web") == 6 })
}
