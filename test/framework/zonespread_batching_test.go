package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// TestPolicyReachesPodsThatWereSigned: the scheduling queue signs a pod when it is queued. Pods that are in the queue
// when a policy comes are placed by the policy all the same, and not by the scores of the pod before them.
func TestPolicyReachesPodsThatWereSigned(t *testing.T) {
	for name, policy := range map[string]*v1alpha1.ZoneSpreadPolicy{
		"none": nil,
		"hard": newPolicy(func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 8 }),
		"soft": newPolicy(func(s *v1alpha1.ZoneSpreadPolicySpec) { s.WhenUnsatisfiable = v1alpha1.ScheduleAnyway }),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				profile := fmt.Sprintf("%s-%s", t.Name(), "hints") // of this test alone: metrics belong to the process
				c := newSpreadCluster(t)
				c.edit = func(p *config.KubeSchedulerProfile) { p.SchedulerName = profile }
				c.addNodes("64", "a1", "a2", "a3", "b1")
				c.start()
				held := make(chan struct{})
				c.mishap.set(func(m *mishap) {
					m.reserve = func(pod string) *fwk.Status {
						if pod == "first" {
							<-held
						}
						return nil
					}
				})
				in := func(pod *v1.Pod) { pod.Spec.SchedulerName = profile }
				c.createPods(newPod("first", "100m", in, build.Label("app", "other")))
				c.settle()
				c.createPods(newPods(8, "web", "100m", in)...)
				c.settle()
				if policy != nil {
					c.policies.Put(policy)
				}
				c.settle()
				close(held)
				c.waitBound("web", 8)
				hints, err := testutil.GetCounterMetricValue(
					metrics.BatchAttemptStats.WithLabelValues(profile, metrics.BatchAttemptHintUsed))
				require.NoError(t, err)
				if policy == nil {
					require.Positive(t, hints)
					return
				}
				require.Zero(t, hints)
				require.Equal(t, map[string]int{"a": 4, "b": 4}, c.byZone("web"))
			})
		})
	}
}
