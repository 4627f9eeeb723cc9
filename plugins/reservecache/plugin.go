package reservecache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/feature"
	"zonewise.dev/internal/leader"
	"zonewise.dev/internal/lease"
	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/internal/published"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

// Name is the name of the plugin in the registry and in KubeSchedulerConfiguration.
const Name = "ReserveCache"

// Shared is what the ReserveCache plugins of all profiles of one scheduler have in common: the ledger, the floor,
// and what feeds the two. Its methods may be called from several goroutines.
type Shared struct {
	clock  clock.WithTicker
	source crd.Source
	// compares is set by WithComparisons.
	compares bool
	// podBackoff returns the initial and the longest backoff of pods.
	podBackoff func() (initial, longest time.Duration)

	mu sync.Mutex // guards all fields below
	// args are those of the first profile.
	args *ReserveCacheArgs
	// profiles are the names of those that have enabled the plugin.
	profiles sets.Set[string]
	// running is set by the first call of New and never changes.
	running *running
}

// Option changes how a Shared is made.
type Option func(*Shared)

// WithClock makes the plugin use c instead of the system's clock.
func WithClock(c clock.WithTicker) Option { return func(s *Shared) { s.clock = c } }

// WithComparisons has each scheduling cycle compare the ledger with its snapshot, which costs as much as the cluster is
// large. It is for tests.
func WithComparisons() Option { return func(s *Shared) { s.compares = true } }

// WithPodBackoff has waiting pods tried again after this backoff instead of that which kube-scheduler has published.
func WithPodBackoff(initial, longest time.Duration) Option {
	return func(s *Shared) { s.podBackoff = func() (time.Duration, time.Duration) { return initial, longest } }
}

// WithSource takes ZoneReservations from source instead of from the API server of the handle.
func WithSource(source crd.Source) Option { return func(s *Shared) { s.source = source } }

// running is what a Shared has once a profile has enabled the plugin. Its fields do not change.
type running struct {
	args       ReserveCacheArgs
	clock      clock.WithTicker
	ledger     *ledger.Ledger
	floor      *cycleFloor
	server     *serve.Server
	refused    *refusedPods
	leader     *leader.Leader
	gate       *gate
	comparison *comparison
}

// NewShared returns the state for one scheduler. It starts nothing: the first call of New does.
func NewShared(options ...Option) *Shared {
	s := &Shared{clock: clock.RealClock{}, profiles: sets.New[string](), podBackoff: sync.OnceValues(published.PodBackoff)}
	for _, option := range options {
		option(s)
	}
	return s
}

// New is the framework's factory of the plugin for one profile. A nil object means the default arguments.
// The first call makes the ledger and adds its handlers to the informers of the handle, until ctx ends.
//
// It fails when the args are wrong, which the error names by field, and when they differ from those of
// another profile.
func (s *Shared) New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	a, err := decodeArgs(obj)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.args != nil && *s.args != a {
		return nil, fmt.Errorf("plugin %s: the args of profile %q differ from those of another profile: all profiles share the ledger",
			Name, h.ProfileName())
	}
	if s.running == nil {
		r, err := s.start(ctx, a, h)
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", Name, err)
		}
		s.args, s.running = &a, r
	}
	s.profiles.Insert(h.ProfileName())
	return &ReserveCache{running: s.running}, nil
}

// hasProfile reports whether the pods of that scheduler name are scheduled by a profile with the plugin.
func (s *Shared) hasProfile(schedulerName string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profiles.Has(schedulerName)
}

// ledgerOptions returns the rules by which kube-scheduler's NodeInfo reads pods under the feature gates of
// this process, so that ledger and snapshot agree.
func ledgerOptions() ledger.Options {
	return ledger.Options{Requests: resource.PodResourcesOptions{
		UseStatusResources: feature.Enabled("InPlacePodVerticalScaling", true),
		InPlacePodLevelResourcesVerticalScalingEnabled: feature.Enabled("InPlacePodLevelResourcesVerticalScaling", true),
		SkipPodLevelResources:                          !feature.Enabled("PodLevelResources", true),
		UseDRANodeAllocatableResourceClaimStatus:       feature.Enabled("DRANodeAllocatableResources", false),
	}}
}

func (s *Shared) start(ctx context.Context, a ReserveCacheArgs, h fwk.Handle) (*running, error) {
	factory := h.SharedInformerFactory()
	if factory == nil {
		return nil, errors.New("the framework has no informers, without which the ledger cannot know the cluster")
	}
	source := s.source
	if source == nil {
		source = crd.Source(nowhere{})
		if config := h.KubeConfig(); config != nil {
			server, err := crd.Connect(config)
			if err != nil {
				return nil, err
			}
			source = server
		}
	}
	l, pods := ledger.New(ledgerOptions()), factory.Core().V1().Pods().Lister()
	nominated := func(node string) ledger.Resources { return nominatedOn(l, pods, h, node) }
	r := &running{
		args: a, clock: s.clock, ledger: l, floor: newCycleFloor(l, a.MaxHeldFraction, nominated), refused: newRefusedPods(h, s.podBackoff),
		leader: leader.Of(ctx, h), comparison: &comparison{ledger: l, mine: s.hasProfile, always: s.compares},
	}
	yields := func(context.Context, string, string) bool { return false }
	if client := h.ClientSet(); client != nil {
		yields = lease.NewObserver(client.CoordinationV1(), s.clock).Yields
	}
	r.server = serve.New(&serve.Config{
		Clock: s.clock, Source: source, Leader: r.leader, Lease: r.leader.Lease, Yields: yields,
		Ledger: l, Floor: r.floor, Fraction: a.MaxHeldFraction, Nominated: nominated, Waker: r.refused, Handle: h,
	})
	synced, err := addHandlers(ctx, factory, r)
	if err != nil {
		return nil, err
	}
	r.gate = newGate(synced, a.HandlerSyncTimeout.Duration)
	if err := r.server.Start(ctx, synced); err != nil {
		return nil, err
	}
	dumper := &dumper{ledger: l, floor: r.floor, comparison: r.comparison}
	dumper.listen(ctx)
	exportMetrics(ctx, r)
	return r, nil
}

// get returns what runs, or nil as long as no profile has enabled the plugin.
func (s *Shared) get() *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Ledger returns the ledger, or nil as long as no profile has enabled the plugin.
func (s *Shared) Ledger() *ledger.Ledger {
	if r := s.get(); r != nil {
		return r.ledger
	}
	return nil
}

// Held returns what is held unused on each node as of the last scheduling cycle; nil as long as no profile has enabled
// the plugin.
func (s *Shared) Held() (held map[string]ledger.Resources) {
	if r := s.get(); r != nil {
		r.floor.Read(func(f *floor.Floor, _ serve.Settled) { held = f.HeldOn() })
	}
	return held
}

// Comparison returns what the last comparison of the ledger with the scheduler's snapshot found; the zero Comparison as
// long as there was none.
func (s *Shared) Comparison() Comparison {
	if r := s.get(); r != nil {
		return r.comparison.report()
	}
	return Comparison{}
}

// Idle reports whether the plugin's workers have nothing to do until an event comes or the clock moves.
func (s *Shared) Idle() bool {
	r := s.get()
	return r == nil || r.server.Idle()
}

// New is the factory for a scheduler that does not wire the plugins itself: all profiles of one scheduler
// get plugins that share their state.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	return perscheduler.Get(ctx, h, Name, func() *Shared { return NewShared() }).New(ctx, obj, h)
}

// ReserveCache is the plugin of one profile.
type ReserveCache struct {
	running *running
}

var (
	_ fwk.PreFilterPlugin   = &ReserveCache{}
	_ fwk.FilterPlugin      = &ReserveCache{}
	_ fwk.PreScorePlugin    = &ReserveCache{}
	_ fwk.ScorePlugin       = &ReserveCache{}
	_ fwk.ReservePlugin     = &ReserveCache{}
	_ fwk.EnqueueExtensions = &ReserveCache{}
	_ fwk.SignPlugin        = &ReserveCache{}
)

// Name returns the plugin's name.
func (*ReserveCache) Name() string { return Name }
