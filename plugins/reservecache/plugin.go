package reservecache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/reservations"
)

// Name is the name of the plugin in the registry and in KubeSchedulerConfiguration.
const Name = "ReserveCache"

// Shared is what the ReserveCache plugins of all profiles of one scheduler have in common: the ledger and
// the informer handlers that feed it. Its methods may be called from several goroutines.
type Shared struct {
	now     func() time.Time
	options []reservations.Option

	mu sync.Mutex // guards args and the making of running
	// args are those of the first profile.
	args *ReserveCacheArgs
	// running is set by the first call of New and never changes.
	running *running
}

// running is what a Shared has once a profile has enabled the plugin. Its fields do not change.
type running struct {
	args         ReserveCacheArgs
	ledger       *ledger.Ledger
	gate         *gate
	drift        *driftDetector
	dumper       *dumper
	reservations *reservations.Reservations
	waker        *waker
	blocked      *blockedPods
	// view is what is held as the present scheduling cycle sees it. It belongs to the scheduling cycles, of which there
	// is one at a time: PreFilter brings it up to date, and the cycle's Filter calls only read it.
	view *ledger.HoldsView
}

// NewShared returns the state for one scheduler. It starts nothing: the first call of New does. The options say where
// ZoneReservations come from, which by default is the API server of the scheduler.
func NewShared(options ...reservations.Option) *Shared {
	return &Shared{now: time.Now, options: options}
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
		return nil, fmt.Errorf("plugin %s: the args of profile %q differ from those of another profile: the ledger is shared by all profiles", Name, h.ProfileName())
	}
	if s.running == nil {
		r, err := s.start(ctx, a, h)
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", Name, err)
		}
		s.args, s.running = &a, r
	}
	return &ReserveCache{running: s.running, handle: h, now: s.now}, nil
}

// newRunning makes the state, of which nothing runs yet.
func newRunning(a ReserveCacheArgs, h activator, options ...reservations.Option) *running {
	l := ledger.New(ledgerOptions())
	r := &running{
		args:    a,
		ledger:  l,
		drift:   newDriftDetector(l, a.DriftSettle.Duration),
		blocked: &blockedPods{},
		view:    &ledger.HoldsView{},
	}
	r.waker = &waker{running: r, handle: h}
	r.reservations = reservations.New(l, r.waker, append(reservationOptions(), options...)...)
	return r
}

func (s *Shared) start(ctx context.Context, a ReserveCacheArgs, h fwk.Handle) (*running, error) {
	factory := h.SharedInformerFactory()
	if factory == nil {
		return nil, errors.New("the framework has no informers, without which the ledger cannot know the cluster")
	}
	client := h.ClientSet()
	if a.AssumedPodTTL.Duration > 0 && client == nil {
		return nil, errors.New("assumedPodTTL is set, but the framework has no client with which to ask the API server")
	}
	r := newRunning(a, h, s.options...)
	synced, err := addHandlers(ctx, factory, r)
	if err != nil {
		return nil, err
	}
	r.gate = newGate(synced, a.HandlerSyncTimeout.Duration)
	if err := r.reservations.Start(ctx, h, synced...); err != nil {
		return nil, err
	}
	r.dumper = &dumper{ledger: r.ledger, drift: r.drift, factory: factory}
	r.dumper.listen(ctx)
	if a.AssumedPodTTL.Duration > 0 {
		e := &expirer{ledger: r.ledger, client: client, ttl: a.AssumedPodTTL.Duration, now: s.now}
		go e.run(ctx)
	}
	go wait.UntilWithContext(ctx, func(ctx context.Context) { r.expireHolds(ctx, s.now()) }, time.Second)
	exportMetrics(ctx, r, s.now)
	return r, nil
}

// Ledger returns the ledger, or nil as long as no profile has enabled the plugin.
func (s *Shared) Ledger() *ledger.Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil
	}
	return s.running.ledger
}

// HoldsFreed tells that someone other than the plugin, such as who holds slots for gangs, holds less than before: the
// pods that holds kept out are tried again, and reservations may take the room. It must not be called from a queueing
// hint, nor with a lock held that hints take.
func (s *Shared) HoldsFreed(ctx context.Context) {
	s.mu.Lock()
	r := s.running
	s.mu.Unlock()
	if r != nil {
		r.holdsFreed(ctx)
	}
}

func (r *running) holdsFreed(ctx context.Context) {
	r.reservations.PodsChanged(true)
	r.waker.Freed(ctx)
}

// Drift returns what the last comparison of the ledger with the scheduler's snapshot found. It is the zero
// Drift as long as no profile has enabled the plugin or no pod has been scheduled.
func (s *Shared) Drift() Drift {
	s.mu.Lock()
	r := s.running
	s.mu.Unlock()
	if r == nil {
		return Drift{}
	}
	return r.drift.report()
}

// New is the factory for a scheduler that does not wire the plugins itself: all profiles of one scheduler
// get plugins that share their state.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	return perscheduler.Get(ctx, h, Name, func() *Shared { return NewShared() }).New(ctx, obj, h)
}

// ReserveCache is the plugin of one profile.
type ReserveCache struct {
	running *running
	handle  fwk.Handle
	now     func() time.Time
}

var (
	_ fwk.PreFilterPlugin   = &ReserveCache{}
	_ fwk.FilterPlugin      = &ReserveCache{}
	_ fwk.ReservePlugin     = &ReserveCache{}
	_ fwk.PostBindPlugin    = &ReserveCache{}
	_ fwk.EnqueueExtensions = &ReserveCache{}
	_ fwk.SignPlugin        = &ReserveCache{}
)

// Name returns the plugin's name.
func (*ReserveCache) Name() string { return Name }
