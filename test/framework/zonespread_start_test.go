package framework

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestFirstCycleAwaitsWorkloads: the first pods wait for the workloads that caps refer to, for a time that begins with
// the first cycle: a scheduler that has waited for its lease for an hour gives them as long as one that leads at once.
func TestFirstCycleAwaitsWorkloads(t *testing.T) {
	for _, arrive := range []bool{true, false} {
		t.Run(map[bool]string{true: "they come", false: "they do not come"}[arrive], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
		})
	}
}
