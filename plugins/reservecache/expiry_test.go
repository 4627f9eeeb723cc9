package reservecache

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/plugins/reservecache/ledger"
)

func TestExpiryAsksFirst(t *testing.T) {
	with := func(change func(*v1.Pod)) *v1.Pod {
		pod := makePod("p", "")
		change(pod)
		return pod
	}
	for name, tc := range map[string]struct {
		live     *v1.Pod
		err      error
		finished bool
		expired  bool
	}{
		"gone":                       {expired: true},
		"gone after its binding":     {finished: true, expired: true},
		"replaced":                   {live: with(func(p *v1.Pod) { p.UID = "another" }), expired: true},
		"finished":                   {live: with(func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n1", v1.PodFailed }), expired: true},
		"being deleted unbound":      {live: with(func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: t0} }), expired: true},
		"unbound after its binding":  {live: makePod("p", ""), finished: true, expired: true},
		"unbound, waiting in Permit": {live: makePod("p", "")},
		"bound":                      {live: makePod("p", "n1"), finished: true},
		"bound, the answer was lost": {live: makePod("p", "n1")},
		"bound elsewhere":            {live: makePod("p", "n2"), finished: true},
		"bound and being deleted":    {live: with(func(p *v1.Pod) { p.Spec.NodeName, p.DeletionTimestamp = "n1", &metav1.Time{Time: t0} }), finished: true},
		"no answer":                  {err: errors.New("timeout"), finished: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewSimpleClientset()
			if tc.live != nil {
				client = fake.NewSimpleClientset(tc.live)
			}
			if tc.err != nil {
				client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			}
			l := ledger.New(ledger.DefaultOptions())
			require.NoError(t, l.AssumePod(makePod("p", ""), "n1", t0))
			if tc.finished {
				l.FinishBinding("p", "n1", t0)
			}
			now := clocktesting.NewFakeClock(t0.Add(time.Minute - 1))
			freed := false
			e := &expirer{ledger: l, client: client, ttl: time.Minute, clock: now, freed: func() { freed = true }}

			e.expire(t.Context())
			require.Empty(t, client.Actions(), "it is not overdue yet")
			now.SetTime(t0.Add(time.Minute))
			e.expire(t.Context())
			require.Len(t, client.Actions(), 1)
			require.Equal(t, !tc.expired, l.IsAssumedPod("p"))
			require.Equal(t, tc.expired, freed, "pods that wait for its room are woken")
		})
	}
}

// TestExpiryDoesNotOutrunTheInformer: what is learned while the API server answers is newer than the
// answer's occasion.
func TestExpiryDoesNotOutrunTheInformer(t *testing.T) {
	l := ledger.New(ledger.DefaultOptions())
	require.NoError(t, l.AssumePod(makePod("p", ""), "n1", t0))
	client := fake.NewSimpleClientset()
	client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		// The ledger is not locked meanwhile, so that its handlers go on.
		_, err := l.AddPod(makePod("p", "n1"))
		return false, nil, err
	})
	e := &expirer{ledger: l, client: client, ttl: time.Minute, clock: clocktesting.NewFakeClock(t0.Add(time.Hour))}
	e.expire(t.Context())
	got, known := l.GetPod("p")
	require.True(t, known)
	require.Equal(t, ledger.Added, got.State)
}

func TestExpiryRunsWithTheScheduler(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	args := defaultArgs()
	args.AssumedPodTTL = metav1.Duration{Duration: time.Nanosecond}
	client := fake.NewSimpleClientset()
	s := NewShared()
	p, err := s.New(ctx, &args, &handle{factory: informers.NewSharedInformerFactory(client, 0), client: client})
	require.NoError(t, err)
	require.NoError(t, p.(*ReserveCache).running.ledger.AssumePod(makePod("p", ""), "n1", t0))
	eventually(t, func() bool { return s.Ledger().Stats() == ledger.Stats{} })
}

func TestExpiryNeedsAClient(t *testing.T) {
	args := defaultArgs()
	args.AssumedPodTTL = metav1.Duration{Duration: time.Minute}
	_, err := NewShared().New(t.Context(), &args, &handle{factory: informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)})
	require.EqualError(t, err, "plugin ReserveCache: assumedPodTTL is set, but the framework has no client with which to ask the API server")
}
