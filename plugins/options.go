package plugins

import (
	"time"

	"k8s.io/utils/clock"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/zonespread"
)

// Option sets up a Pack.
type Option func(*options)

type options struct {
	zoneSpread   []zonespread.Option
	reserveCache []reservecache.Option
	permitGate   []permitgate.Option
	fence        bool
	retryWatches bool
	alone        bool
}

// WithoutElection says that the scheduler takes part in no leader election: its plugins lead as soon as its informers
// have synced. It is for a program that runs the scheduler as a library.
func WithoutElection() Option { return func(o *options) { o.alone = true } }

// WithFence has the scheduler write to the API server only while it can show that it holds the lease of its leader
// election, of which Pack.ObserveElection tells: one that was stopped for longer than the lease, and goes on when
// another one leads already, changes nothing. It changes the scheduler's clientset and client configuration, which
// therefore must be its own and not in use when the plugins are made; those of app.Setup are.
func WithFence() Option { return func(o *options) { o.fence = true } }

// WithRetriedWatches has the scheduler's watches wait for an API server that cannot be reached, so that the scheduler
// sees the cluster as it is soon after the API server is back, and not only after its informers' pauses of up to a
// minute. Its conditions are those of WithFence.
func WithRetriedWatches() Option { return func(o *options) { o.retryWatches = true } }

// WithClock makes the plugins use c instead of the machine's clock.
func WithClock(c clock.WithTicker) Option {
	return func(o *options) {
		o.zoneSpread = append(o.zoneSpread, zonespread.WithClock(c))
		o.reserveCache = append(o.reserveCache, reservecache.WithClock(c))
		o.permitGate = append(o.permitGate, permitgate.WithClock(c))
	}
}

// WithPodBackoff tells the plugins the backoff of pods, for a scheduler that does not publish its configuration.
func WithPodBackoff(initial, longest time.Duration) Option {
	return func(o *options) {
		o.zoneSpread = append(o.zoneSpread, zonespread.WithPodBackoff(initial, longest))
		o.reserveCache = append(o.reserveCache, reservecache.WithPodBackoff(initial, longest))
	}
}

// WithComparisons has each scheduling cycle compare the ledger with its snapshot, for tests.
func WithComparisons() Option {
	return func(o *options) { o.reserveCache = append(o.reserveCache, reservecache.WithComparisons()) }
}

// WithSource makes the plugins read their custom resources from source instead of the scheduler's API server.
func WithSource(source crd.Source) Option {
	return func(o *options) {
		o.zoneSpread = append(o.zoneSpread, zonespread.WithSource(source))
		o.reserveCache = append(o.reserveCache, reservecache.WithSource(source))
		o.permitGate = append(o.permitGate, permitgate.WithSource(source))
	}
}
