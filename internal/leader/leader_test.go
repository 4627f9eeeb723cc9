package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/leader"
)

// schedulerConfig has the shape of KubeSchedulerConfiguration where it matters here.
type schedulerConfig struct {
	metav1.TypeMeta `json:",inline"`

	LeaderElection componentconfig.LeaderElectionConfiguration `json:"leaderElection"`
}

func (c *schedulerConfig) DeepCopyObject() runtime.Object { return ptr.To(*c) }

type handle struct {
	factory informers.SharedInformerFactory
}

func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

func newHandle() handle {
	h := handle{informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)}
	h.factory.Core().V1().Pods().Informer()
	return h
}

func publish(t *testing.T, leaderElect bool) {
	t.Helper()
	publishElection(t, componentconfig.LeaderElectionConfiguration{LeaderElect: ptr.To(leaderElect)})
}

func publishElection(t *testing.T, election componentconfig.LeaderElectionConfiguration) {
	t.Helper()
	config, err := configz.New("componentconfig")
	require.NoError(t, err)
	t.Cleanup(func() { configz.Delete("componentconfig") })
	published := &schedulerConfig{LeaderElection: election}
	published.APIVersion, published.Kind = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
	require.NoError(t, config.Set(published))
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func eventually(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("the process does not lead after a minute")
	}
}

func TestWithoutElectionLeadsOnceInformersHaveSynced(t *testing.T) {
	for name, configure := range map[string]func(*testing.T){
		"election off":             func(t *testing.T) { publish(t, false) },
		"scheduler run as library": func(*testing.T) {},
	} {
		t.Run(name, func(t *testing.T) {
			configure(t)
			synctest.Test(t, func(t *testing.T) {
				h := newHandle()
				led := leader.Of(t.Context(), h).Leading()
				time.Sleep(time.Minute)
				require.False(t, isClosed(led), "before the informers have synced")
				h.factory.Start(t.Context().Done())
				eventually(t, led)
			})
		})
	}
}

// brokenCollector fails each time that metrics are gathered.
type brokenCollector struct{}

func (brokenCollector) Describe(chan<- *prometheus.Desc) {}

func (brokenCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "Broken.", nil, nil), errors.New("out of order"))
}

func TestABrokenCollectorDoesNotHideTheLease(t *testing.T) {
	t.Cleanup(legacyregistry.Reset)
	publish(t, true)
	require.NoError(t, legacyregistry.Registerer().Register(brokenCollector{}))
	t.Cleanup(func() { legacyregistry.Registerer().Unregister(brokenCollector{}) })
	_, err := legacyregistry.DefaultGatherer.Gather()
	require.ErrorContains(t, err, "out of order")
	synctest.Test(t, func(t *testing.T) {
		h := newHandle()
		elect(t)
		led := leader.Of(t.Context(), h).Leading()
		time.Sleep(time.Minute)
		require.False(t, isClosed(led), "it is being built, and the lease may be another's of the process")
		h.factory.Start(t.Context().Done())
		eventually(t, led)
	})
}

func TestACycleProvesLeadership(t *testing.T) {
	publish(t, true)
	l := leader.Of(t.Context(), newHandle())
	require.False(t, isClosed(l.Leading()))
	l.Cycle()
	require.True(t, isClosed(l.Leading()))
	l.Cycle()
}

func TestOneLeaderForAllPlugins(t *testing.T) {
	h := newHandle()
	one := leader.Of(t.Context(), h)
	require.Same(t, one, leader.Of(t.Context(), h))
	require.NotSame(t, leader.Of(t.Context(), h), leader.Of(t.Context(), newHandle()), "another scheduler of the process")
}

func TestWithElectionLeadsOnceTheLeaseIsHeld(t *testing.T) {
	// The gauge belongs to the process, and an elector that is cancelled leaves it at 1.
	t.Cleanup(legacyregistry.Reset)
	publish(t, true)
	synctest.Test(t, func(t *testing.T) {
		h := newHandle()
		h.factory.Start(t.Context().Done())
		h.factory.WaitForCacheSync(t.Context().Done())
		led := leader.Of(t.Context(), h).Leading()
		time.Sleep(time.Minute)
		require.False(t, isClosed(led), "a standby replica")

		elect(t)
		eventually(t, led)
	})
}

// elect runs an elector that takes the lease, until the test ends.
func elect(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:            "kube-scheduler",
		Lock:            &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"}, Client: fake.NewSimpleClientset().CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}},
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     time.Second,
		ReleaseOnCancel: true,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() { close(stopped) }},
	})
	require.NoError(t, err)
	go elector.Run(ctx)
	t.Cleanup(func() { cancel(); <-stopped })
}
