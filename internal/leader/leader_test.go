package leader

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

type handle struct {
	factory informers.SharedInformerFactory
}

func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

func newHandle() handle {
	h := handle{informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)}
	h.factory.Core().V1().Pods().Informer()
	return h
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// newElectionConfig returns the configuration of an elector called "me", with upstream's terms.
func newElectionConfig() *leaderelection.LeaderElectionConfig {
	return &leaderelection.LeaderElectionConfig{
		Name: "kube-scheduler",
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"},
			Client:    fake.NewSimpleClientset().CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
	}
}

// elect runs the elector of a configuration until stop is called, or the test ends.
func elect(t *testing.T, config *leaderelection.LeaderElectionConfig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	config.Callbacks = leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() { close(stopped) }}
	elector, err := leaderelection.NewLeaderElector(*config)
	require.NoError(t, err)
	go elector.Run(ctx)
	stop = func() { cancel(); <-stopped }
	t.Cleanup(stop)
	return stop
}

func TestWithoutElectionASchedulerLeadsOnceItsInformersHaveSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, election := newHandle(), NewElection()
		Follow(t.Context(), h, election)
		led := Of(t.Context(), h).Leading()
		election.Observe(nil)
		time.Sleep(time.Minute)
		require.False(t, isClosed(led), "before the informers have synced")
		h.factory.Start(t.Context().Done())
		time.Sleep(time.Second)
		require.True(t, isClosed(led))
		require.Empty(t, Of(t.Context(), h).Lease())
	})
}

func TestWithElectionASchedulerLeadsOnceItHoldsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, election, config := newHandle(), NewElection(), newElectionConfig()
		Follow(t.Context(), h, election)
		Follow(t.Context(), h, NewElection()) // the second profile's is not another one
		h.factory.Start(t.Context().Done())
		election.Observe(config)
		led := Of(t.Context(), h).Leading()
		time.Sleep(time.Minute)
		require.False(t, isClosed(led), "a standby replica")
		require.Equal(t, "kube-system/kube-scheduler", Of(t.Context(), h).Lease())

		elect(t, config)
		time.Sleep(time.Second)
		require.True(t, isClosed(led))
	})
}

func TestAStandbyDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leading := newElectionConfig()
		elect(t, leading)
		time.Sleep(time.Second)
		h, election, config := newHandle(), NewElection(), newElectionConfig()
		config.Lock.(*resourcelock.LeaseLock).LockConfig.Identity = "other" //nolint:forcetypeassert // made by newElectionConfig.
		config.Lock.(*resourcelock.LeaseLock).Client = leading.Lock.(*resourcelock.LeaseLock).Client
		Follow(t.Context(), h, election)
		h.factory.Start(t.Context().Done())
		election.Observe(config)
		elect(t, config)
		time.Sleep(time.Hour)
		require.False(t, isClosed(Of(t.Context(), h).Leading()))
	})
}

func TestACycleProvesLeadership(t *testing.T) {
	l := Of(t.Context(), newHandle())
	require.False(t, isClosed(l.Leading()))
	l.Cycle()
	require.True(t, isClosed(l.Leading()))
	l.Cycle()
	require.Empty(t, l.Lease(), "a scheduler whose election is not observed")
}
