package reservecache

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestArgs(t *testing.T) {
	defaults := ReserveCacheArgs{
		HandlerSyncTimeout: metav1.Duration{Duration: 30 * time.Second},
		MaxHeldFraction:    0.5,
	}
	for name, tc := range map[string]struct {
		raw  string
		want func(*ReserveCacheArgs)
		err  string
	}{
		"none":  {raw: ``},
		"empty": {raw: `{}`},
		"kind":  {raw: `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"ReserveCacheArgs"}`},
		"all": {raw: `{"handlerSyncTimeout":"2s","maxHeldFraction":0.25}`, want: func(a *ReserveCacheArgs) {
			a.MaxHeldFraction = 0.25
			a.HandlerSyncTimeout.Duration = 2 * time.Second
		}},
		"yaml":     {raw: "maxHeldFraction: 1\n", want: func(a *ReserveCacheArgs) { a.MaxHeldFraction = 1 }},
		"typo":     {raw: `{"handlersyncTimeout":"1m"}`, err: `plugin ReserveCache: args: unknown field "handlersyncTimeout"`},
		"timeout":  {raw: `{"handlerSyncTimeout":"0s"}`, err: `plugin ReserveCache: invalid args: handlerSyncTimeout: Invalid value: "0s": must be more than 0`},
		"fraction": {raw: `{"maxHeldFraction":1.5}`, err: `plugin ReserveCache: invalid args: maxHeldFraction: Invalid value: 1.5: must be above 0 and at most 1`},
		"no bound": {raw: `{"maxHeldFraction":0}`, err: `plugin ReserveCache: invalid args: maxHeldFraction: Invalid value: 0: must be above 0 and at most 1`},
		"no unit":  {raw: `{"handlerSyncTimeout":5}`, err: `plugin ReserveCache: args: `},
		"not yaml": {raw: `{`, err: `plugin ReserveCache: args: `},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeArgs(&runtime.Unknown{Raw: []byte(tc.raw)})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
			want := defaults
			if tc.want != nil {
				tc.want(&want)
			}
			require.Equal(t, want, got)
		})
	}
}

func TestProfilesShareOneLedger(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	second, err := f.shared.New(t.Context(), &runtime.Unknown{Raw: []byte(`{}`)}, &handle{profile: "batch", factory: f.handle.factory})
	require.NoError(t, err)

	require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{}, makePod("p", ""), "n1"))
	require.True(t, second.(*ReserveCache).running.ledger.IsAssumedPod("p"))
	require.Same(t, f.shared.Ledger(), second.(*ReserveCache).running.ledger)
}

func TestProfilesMustAgreeOnArgs(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.shared.New(t.Context(), &runtime.Unknown{Raw: []byte(`{"handlerSyncTimeout":"1s"}`)}, &handle{profile: "batch", factory: f.handle.factory})
	require.EqualError(t, err, `plugin ReserveCache: the args of profile "batch" differ from those of another profile: all profiles share the ledger`)
}

func TestSharedBeforeAnyProfile(t *testing.T) {
	s := NewShared()
	require.Nil(t, s.Ledger())
	require.Equal(t, Comparison{}, s.Comparison())
}

func TestNewNeedsInformers(t *testing.T) {
	s := NewShared()
	_, err := s.New(t.Context(), nil, &handle{})
	require.EqualError(t, err, "plugin ReserveCache: the framework has no informers, without which the ledger cannot know the cluster")

	// The failure leaves nothing behind that would keep another profile from starting.
	_, err = s.New(t.Context(), nil, &handle{factory: informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)})
	require.NoError(t, err)
}

// TestOneLedgerPerScheduler is about the factory for schedulers that do not wire the plugins: profiles of
// one scheduler share, two schedulers do not.
func TestOneLedgerPerScheduler(t *testing.T) {
	ledgerOf := func(ctx context.Context, factory informers.SharedInformerFactory) any {
		p, err := New(ctx, nil, &handle{factory: factory})
		require.NoError(t, err)
		return p.(*ReserveCache).running.ledger
	}
	one := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	other := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	first := ledgerOf(t.Context(), one)
	require.Same(t, first, ledgerOf(t.Context(), one))
	require.NotSame(t, first, ledgerOf(t.Context(), other))
}
