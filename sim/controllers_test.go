package sim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim"
	"zonewise.dev/test/build"
)

// ownedBy gives a pod its controller.
func ownedBy(apiVersion, kind string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "owner", Controller: ptr.To(true)}}
	}
}

// TestWhoReplacesAPod: a pod runs again only if a controller is known that makes another one.
func TestWhoReplacesAPod(t *testing.T) {
	disruption := func(action batchv1.PodFailurePolicyAction) *batchv1.PodFailurePolicy {
		return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
		}}}
	}
	job := func(spec batchv1.JobSpec, failed int32) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "owner", UID: "owner"}, Spec: spec, Status: batchv1.JobStatus{Failed: failed}}
	}
	for name, test := range map[string]struct {
		pod  func(*v1.Pod)
		over client.Object
		why  string // empty: two pods are replaced
	}{
		"a ReplicaSet":              {pod: ownedBy("apps/v1", "ReplicaSet")},
		"a StatefulSet":             {pod: ownedBy("apps/v1", "StatefulSet")},
		"a ReplicationController":   {pod: ownedBy("v1", "ReplicationController")},
		"an unknown Job":            {pod: ownedBy("batch/v1", "Job")},
		"no controller":             {pod: func(p *v1.Pod) { p.OwnerReferences = nil }, why: "no controller replaces it"},
		"a custom resource":         {pod: ownedBy("tekton.dev/v1", "TaskRun"), why: "no controller is known to replace it: its owner is TaskRun.tekton.dev owner"},
		"another group's kind":      {pod: ownedBy("example.com/v1", "ReplicaSet"), why: "no controller is known to replace it: its owner is ReplicaSet.example.com owner"},
		"one that the caller names": {pod: ownedBy("ray.io/v1", "RayCluster")},
		"a Job that bears it":       {pod: ownedBy("batch/v1", "Job"), over: job(batchv1.JobSpec{BackoffLimit: ptr.To[int32](2)}, 0)},
		"a Job that bears no more": {
			pod: ownedBy("batch/v1", "Job"), over: job(batchv1.JobSpec{BackoffLimit: ptr.To[int32](2)}, 1),
			why: "its Job owner fails: 3 of its pods have failed (backoffLimit 2)",
		},
		"a Job that ignores disruptions": {pod: ownedBy("batch/v1", "Job"), over: job(batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](0), PodFailurePolicy: disruption(batchv1.PodFailurePolicyActionIgnore),
		}, 0)},
		"a Job that fails by them": {
			pod: ownedBy("batch/v1", "Job"), over: job(batchv1.JobSpec{PodFailurePolicy: disruption(batchv1.PodFailurePolicyActionFailJob)}, 0),
			why: "its Job owner fails when a pod is disrupted (podFailurePolicy)",
		},
		"a Job with limits of indexes": {
			pod: ownedBy("batch/v1", "Job"), over: job(batchv1.JobSpec{BackoffLimitPerIndex: ptr.To[int32](0)}, 0),
			why: "its index of Job owner fails with it (backoffLimitPerIndex 0)",
		},
		"a suspended Job": {
			pod: ownedBy("batch/v1", "Job"), over: job(batchv1.JobSpec{Suspend: ptr.To(true)}, 0), why: "its Job owner is suspended",
		},
		"a Job that is over": {pod: ownedBy("batch/v1", "Job"), over: &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "owner", UID: "owner"},
			Status:     batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: v1.ConditionTrue}}},
		}, why: "its Job owner is over"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{node("node-a", "a", "8"), node("node-b", "b", "8")}
			for i := range 2 {
				objects = append(objects, pod(fmt.Sprintf("pod-%d", i), "owner", "1", test.pod, build.Bound("node-a")))
			}
			if test.over != nil {
				objects = append(objects, test.over)
			}
			s := run(t, objects, sim.Options{Controllers: []string{"raycluster.ray.io"}})
			loss := s.Lose(func(n *v1.Node) bool { return n.Name == "node-a" })
			require.NoError(t, s.Run(t.Context()))
			if test.why == "" {
				require.Len(t, loss.Displaced, 2)
				require.Empty(t, loss.Orphans)
				require.Equal(t, map[string]int{"b": 2}, zones(s))
				return
			}
			require.Empty(t, loss.Displaced)
			require.Len(t, loss.Orphans, 2)
			require.Equal(t, test.why, s.WhyNotReplaced(loss.Orphans[0]))
			require.Empty(t, zones(s))
		})
	}
}

// TestALossTakenBackIsForgotten: the failures of a replay do not count in the next one.
func TestALossTakenBackIsForgotten(t *testing.T) {
	objects := []client.Object{node("node-a", "a", "8"), node("node-b", "b", "8"), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "owner", UID: "owner"}, Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](1)},
	}, pod("pod", "owner", "1", ownedBy("batch/v1", "Job"), build.Bound("node-a"))}
	s := run(t, objects, sim.Options{})
	s.Mark()
	for range 3 {
		require.Len(t, s.Lose(func(n *v1.Node) bool { return n.Name == "node-a" }).Displaced, 1)
		require.NoError(t, s.Run(t.Context()))
		s.Rewind()
		require.NoError(t, s.Run(t.Context()))
	}
}

// TestWhenAVictimIsReplaced: a ReplicaSet does not wait for the end of a pod that terminates, so that its replacement
// competes for room while the victim still takes some. A StatefulSet waits: the name is taken.
func TestWhenAVictimIsReplaced(t *testing.T) {
	for kind, atOnce := range map[string]bool{"ReplicaSet": true, "StatefulSet": false} {
		t.Run(kind, func(t *testing.T) {
			s := run(t, []client.Object{
				node("node-a", "a", "2"),
				pod("victim", "owner", "2", ownedBy("apps/v1", kind), func(p *v1.Pod) { p.Spec.NodeName, p.Spec.Priority = "node-a", ptr.To[int32](0) }),
				// It has room for the replacement alone, and not for who preempts.
				node("node-b", "b", "2"),
				pod("other", "other", "2", func(p *v1.Pod) { p.Spec.NodeName, p.Spec.Priority = "node-b", ptr.To[int32](2000) }),
				pod("preempts", "high", "2", func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](1000) }),
			}, sim.Options{})
			require.Len(t, s.Evicted(), 1)
			for _, p := range sim.List[*v1.Pod](s) {
				if s.Replaced()[p.UID] != nil {
					require.Equal(t, atOnce, p.CreationTimestamp.Time.Before(now.Add(sim.StopTime/2)), "%s at %s", p.Name, p.CreationTimestamp)
					return
				}
			}
			t.Fatal("the victim is replaced")
		})
	}
}
