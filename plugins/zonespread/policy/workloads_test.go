package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

func selecting(pairs map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: pairs}
}

func TestWorkloadOf(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "web", UID: "1"}
	app := selecting(map[string]string{"app": "web"})
	job := func(parallelism, completions, succeeded int32) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
			Parallelism: &parallelism,
			Completions: &completions, Selector: app,
		}, Status: batchv1.JobStatus{Succeeded: succeeded}}
	}
	suspended, failed, done := job(4, 9, 0), job(4, 9, 0), job(4, 9, 9)
	suspended.Spec.Suspend = new(true)
	failed.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: v1.ConditionTrue}}
	done.Status.CompletionTime = &metav1.Time{}
	for name, test := range map[string]struct {
		object   metav1.Object
		kind     string
		replicas int64
	}{
		"ReplicaSet": {&appsv1.ReplicaSet{
			ObjectMeta: meta,
			Spec:       appsv1.ReplicaSetSpec{Replicas: new(int32(3)), Selector: app},
		}, "ReplicaSet", 3},
		"StatefulSet": {&appsv1.StatefulSet{
			ObjectMeta: meta,
			Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: app},
		}, "StatefulSet", 3},
		"ReplicationController": {&v1.ReplicationController{
			ObjectMeta: meta,
			Spec: v1.ReplicationControllerSpec{
				Replicas: new(int32(3)),
				Selector: app.MatchLabels,
			},
		}, "ReplicationController", 3},
		"Job":              {job(4, 9, 3), "Job", 4},
		"Job, nearly done": {job(4, 9, 7), "Job", 2},
		"Job, suspended":   {suspended, "Job", 0},
		"Job, failed":      {failed, "Job", 0},
		"Job, done":        {done, "Job", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := policy.WorkloadOf(test.object)
			require.Equal(t, policy.Workload{
				UID: "1", Name: test.kind +
					" web", Replicas: test.replicas, Known: true, Selector: labels.SelectorFromSet(app.MatchLabels),
			}, w)
		})
	}
	require.Empty(t, policy.WorkloadOf(&v1.Pod{}))
}

// TestWorkloadBehindAReplicaSet: what a ReplicaSet knows of its Deployment or Rollout, whose revisions differ in one
// label.
func TestWorkloadBehindAReplicaSet(t *testing.T) {
	for kind, keys := range map[string]struct{ replicas, revision string }{
		"Deployment": {"deployment.kubernetes.io/desired-replicas", "pod-template-hash"},
		"Rollout":    {"rollout.argoproj.io/desired-replicas", "rollouts-pod-template-hash"},
	} {
		t.Run(kind, func(t *testing.T) {
			set := &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{
					Annotations:     map[string]string{keys.replicas: "12"},
					OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "web", UID: "9", Controller: new(true)}},
				},
				Spec: appsv1.ReplicaSetSpec{
					Replicas: new(int32(3)), Selector: selecting(map[string]string{"app": "web", keys.revision: "5"}),
				},
			}
			require.Equal(t, policy.Workload{
				UID: "9", Name: kind + " web", Replicas: 12, Known: true,
				Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
			}, policy.WorkloadOf(set))
			require.Len(t, set.Spec.Selector.MatchLabels, 2, "the object is the informer's")
			// A policy's defaults tell its revisions apart.
			p := compile(t)
			require.NotEqual(t, p.Revision(labels.Set{keys.revision: "5"}), p.Revision(labels.Set{keys.revision: "6"}))
			set.Annotations = nil
			w := policy.WorkloadOf(set)
			require.False(t, w.Known)
			require.NotNil(t, w.Selector)
			set.OwnerReferences[0].Kind = "Workflow"
			require.Empty(t, policy.WorkloadOf(set), "nothing is known of other kinds")
		})
	}
}

// TestHeld: which pods count for the caps of a pod of revision 1 of the workload web.
func TestHeld(t *testing.T) {
	pod := labels.Set{"app": "web", "tier": "front", "pod-template-hash": "1"}
	same, old := pod, labels.Set{"app": "web", "tier": "front", "pod-template-hash": "0"}
	other := labels.Set{"app": "api", "tier": "front", "pod-template-hash": "7"}
	foreign := labels.Set{"app": "web", "tier": "back", "pod-template-hash": "1"}
	front := func(s *v1alpha1.ZoneSpreadPolicySpec) { s.PodSelector = *selecting(map[string]string{"tier": "front"}) }
	web, unknown := workload(5), policy.Workload{}
	for _, test := range []struct {
		name     string
		p        *policy.Policy
		w        policy.Workload
		pod      labels.Set
		old, api bool
	}{
		{"its own revision of its own workload", compile(t, front), web, pod, false, false},
		{"all revisions", compile(t, front, allRevisions), web, pod, true, false},
		{"a StatefulSet", compile(t, front), web, labels.Set{"app": "web", "tier": "front"}, true, false},
		{"a number is for all workloads", compile(t, front, replicas("9")), web, pod, false, true},
		{"so is Matching", compile(t, front, replicas("Matching")), web, pod, false, true},
		{"with all revisions", compile(t, front, replicas("9"), allRevisions), web, pod, true, true},
		{"unknown: by revision", compile(t, front), unknown, pod, false, false},
		{"unknown, a number", compile(t, front, replicas("9")), unknown, pod, false, false},
		{"gangs", compile(t, front, countGangs), web, pod, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			held := test.p.HeldFor(&test.w, test.pod)
			require.True(t, held.Counts(same))
			require.Equal(t, test.old, held.Counts(old), "an old revision")
			require.Equal(t, test.api, held.Counts(other), "another workload")
			require.False(t, held.Counts(foreign), "a pod that the policy does not select")
		})
	}
}
