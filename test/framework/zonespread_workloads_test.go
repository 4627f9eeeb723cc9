package framework

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
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

// TestPodsComeBeforeTheirReplicaSet: caps hold for pods whose ReplicaSet arrives later, which go on when it comes; one
// that never comes keeps them for half a minute.
func TestPodsComeBeforeTheirReplicaSet(t *testing.T) {
	inBubbles(t, map[string]bool{"it arrives": true, "it does not arrive": false}, func(t *testing.T, arrives bool) {
		// Given: a cap of a third, and room in zone a alone.
		c := newSpreadCluster(t)
		c.addNodes("100", "a1")
		c.addNodes("100m", "b1", "c1")
		c.policies.Put(newPolicy(maxPerZone("34%", 100), func(s *v1alpha1.ZoneSpreadPolicySpec) { s.PercentRounding = v1alpha1.RoundDown }))
		c.start()
		web := deployment("web", 6)
		set := revision(web, "1", 6)
		// When: the pods come, and their ReplicaSet does not, or 20 seconds later.
		start := c.clock.Now()
		c.createPods(newPods(6, "web", "100m", ofSet(set))...)
		c.pass(20 * time.Second)
		// Then: none is placed without a cap.
		require.Empty(t, c.bound("web"))
		if arrives {
			c.add(set)
			c.eventuallyWithin(12*time.Second, "they go on", func() bool { return len(c.bound("web")) == 4 })
			c.pass(time.Minute)
			require.Equal(t, map[string]int{"a": 2, "b": 1, "c": 1}, c.byZone("web"))
			return
		}
		c.waitBound("web", 6)
		require.InDelta(t, 35*time.Second, c.clock.Since(start), float64(6*time.Second))
	})
}

// TestFirstCycleAwaitsWorkloads: the first pods wait for the workloads that caps refer to, for a time that begins with
// the first cycle: a scheduler that has waited for its lease for an hour gives them as long as one that leads at once.
func TestFirstCycleAwaitsWorkloads(t *testing.T) {
	inBubbles(t, map[string]bool{"they come": true, "they do not come": false}, func(t *testing.T, arrive bool) {
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "job-web"},
			Spec: batchv1.JobSpec{
				Parallelism: ptr.To[int32](6), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			},
		}
		c := newSpreadCluster(t, job)
		c.jobs = make(chan struct{})
		c.addNodes("100", "a1")
		c.addNodes("100m", "b1", "c1")
		c.policies.Put(newPolicy(maxPerZone("34%", 100), func(s *v1alpha1.ZoneSpreadPolicySpec) { s.PercentRounding = v1alpha1.RoundDown }))
		c.start()
		c.pass(time.Hour) // without a cycle, as a standby
		c.createPods(newPods(6, "web", "100m", func(pod *v1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: ptr.To(true)}}
		})...)
		c.pass(4 * time.Second)
		require.Empty(t, c.bound(""), "the first cycle waits")
		if !arrive {
			c.pass(2 * time.Second)
			require.Equal(t, map[string]int{"a": 4, "b": 1, "c": 1}, c.byZone(""), "it does not wait for ever, and a share of what is not known refuses nothing")
			return
		}
		close(c.jobs)
		c.eventuallyWithin(time.Second, "it goes on at once", func() bool { return len(c.bound("")) == 4 })
		c.pass(30 * time.Second)
		require.Equal(t, map[string]int{"a": 2, "b": 1, "c": 1}, c.byZone(""), "34%% of the Job's six pods")
	})
}
