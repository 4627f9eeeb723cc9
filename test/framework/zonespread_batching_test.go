package framework

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/zonespread"
	"zonewise.dev/test/build"
	"zonewise.dev/test/crdtest"
	"zonewise.dev/test/schedulertest"
)

// TestPolicyReachesPodsThatWereSigned: the scheduling queue signs a pod when it is queued. Pods that are in the queue
// when a policy comes are placed by the policy all the same, and not by the scores of the pod before them.
func TestPolicyReachesPodsThatWereSigned(t *testing.T) {
	inBubbles(t, map[string]*v1alpha1.ZoneSpreadPolicy{
		"none": nil,
		"hard": newPolicy(func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 8 }),
		"soft": newPolicy(func(s *v1alpha1.ZoneSpreadPolicySpec) { s.WhenUnsatisfiable = v1alpha1.ScheduleAnyway }),
	}, func(t *testing.T, policy *v1alpha1.ZoneSpreadPolicy) {
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
}

// lateSource is a source that does not say what it has before settled is set.
type lateSource struct {
	*crdtest.Source
	settled atomic.Bool
}

func (s *lateSource) Watch(
	ctx context.Context, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(bool),
) (crd.Kind, error) {
	kind, err := s.Source.Watch(ctx, obj, handler, onChange)
	return lateKind{kind, s}, err
}

type lateKind struct {
	crd.Kind
	source *lateSource
}

func (k lateKind) Settled() bool { return k.source.settled.Load() }

// TestNoPodIsSignedBeforePoliciesAreKnown: the scheduling queue keeps the signatures of the pods that it has at the
// start.
func TestNoPodIsSignedBeforePoliciesAreKnown(t *testing.T) {
	api := fake.NewSimpleClientset()
	handle, err := frameworkruntime.NewFramework(t.Context(), nil, nil,
		frameworkruntime.WithClientSet(api),
		frameworkruntime.WithInformerFactory(schedulertest.NewInformerFactory(api)),
		frameworkruntime.WithSnapshotSharedLister(cache.NewSnapshot(nil, nil)),
	)
	require.NoError(t, err)
	source := &lateSource{Source: crdtest.New()}
	args := &runtime.Unknown{Raw: []byte(`{"defaultingType": "List"}`)}
	plugin, err := zonespread.NewShared(zonespread.WithSource(source)).New(t.Context(), args, handle)
	require.NoError(t, err)
	sign := func() *fwk.Status {
		_, status := plugin.(fwk.SignPlugin).SignPod(t.Context(), newPod("web", "100m"))
		return status
	}
	require.True(t, sign().IsRejected(), "a policy may be about to come")
	source.settled.Store(true)
	require.True(t, sign().IsSuccess())
	source.Put(newPolicy())
	require.True(t, sign().IsRejected())
}
