package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/metrics"
)

// refusalInterval is how long a write is refused on the word of the last look at the lease, so that a process that has
// lost it asks seldom.
const refusalInterval = 250 * time.Millisecond

// fencedWrites tells operators that a leader was stopped for longer than its lease.
var fencedWrites = metrics.NewCounter(&compbasemetrics.CounterOpts{
	Namespace:      metrics.Namespace,
	Subsystem:      "leader",
	Name:           "fenced_writes_total",
	Help:           "Writes to the API server that were held back because this process could not show that it still held the lease.",
	StabilityLevel: compbasemetrics.ALPHA,
})

var (
	errExpired = errors.New("the lease of this scheduler has run out")
	errEnding  = errors.New("this scheduler is about to end, and another one may lead already")
	errUnknown = errors.New("this scheduler was stopped when it became the leader, and does not know yet whether it still is")
)

// fence lets the writes of a leader through as long as it can show that it holds the lease.
//
// The proof is the lease itself, read from the API server: it names this process, and was renewed at a time by this
// process's own clock, so that clocks need not agree. No other process takes it before leaseDuration has passed since.
// Writes go through until renewDeadline has passed, for which time a leader may rely on a lease without renewing it;
// the rest of leaseDuration is for requests under way. Then the lease is read again, before the next write. So a
// process that was stopped needs not notice it: its proof is too old, by whatever goroutine runs first.
//
// A proof in use is renewed at half of its time, and costs a write an atomic read. Its methods may be called from
// several goroutines.
type fence struct {
	ctx   context.Context // the scheduler's
	clock clock.PassiveClock
	// election and leads tell what the process has published, and whether its elector says that it leads.
	election func() election
	leads    func() bool
	// lease reads a lease.
	lease func(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error)

	last  atomic.Pointer[answer]
	reads singleflight.Group

	mu    sync.Mutex // guards what follows
	self  string     // the holder's name of this process, "" until it is known
	began bool       // the elector said that it leads
	free  time.Time  // when it last said that it does not
	polls int        // since it says so
}

// answer is what a look at the lease has shown.
type answer struct {
	err  error // nil: this process holds it
	from time.Time
	span time.Duration
}

// age is how much time has passed, by the clock that says more: the monotonic one stands still while the machine
// sleeps, the other can be set.
func age(from, now time.Time) time.Duration {
	return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))
}

func (a *answer) holds(now time.Time) bool { return a != nil && age(a.from, now) < a.span }

// old reports whether a proof is to be renewed.
func (a *answer) old(now time.Time) bool { return a.err == nil && age(a.from, now) > a.span/2 }

func newFence(ctx context.Context, c clock.PassiveClock, lease func(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error)) *fence {
	metrics.MustRegister(fencedWrites)
	return &fence{
		ctx: ctx, clock: c, election: sync.OnceValue(configured), leads: leaseHeld, lease: lease, free: c.Now(),
	}
}

// confirm returns nil when this process may write to the API server: it has no leader election, has not led yet (what
// it writes then has nothing to do with leading), or leads. It returns early when ctx ends.
func (f *fence) confirm(ctx context.Context) error {
	if !f.election().LeaderElect {
		return nil
	}
	if f.ctx.Err() != nil {
		return errEnding // kube-scheduler gives the lease back before it ends
	}
	a, now := f.last.Load(), f.clock.Now()
	if !a.holds(now) {
		read := f.reads.DoChan("", f.readUnlessKnown)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-read:
		}
		// The process may have been stopped since.
		if a = f.last.Load(); !a.holds(f.clock.Now()) {
			return errExpired
		}
		return a.err
	}
	if a.old(now) {
		f.reads.DoChan("", f.read)
	}
	return a.err
}

// readUnlessKnown looks at the lease for writes that had no answer when they began. Another look may have ended since.
func (f *fence) readUnlessKnown() (any, error) {
	if f.last.Load().holds(f.clock.Now()) {
		return nil, nil
	}
	return f.read()
}

// read looks at the lease. Its results are not used.
func (f *fence) read() (any, error) {
	e := f.election()
	f.mu.Lock()
	led := f.ledLocked()
	f.mu.Unlock()
	a := &answer{from: f.clock.Now()} // for this write only
	if led {
		ctx, cancel := context.WithTimeout(f.ctx, e.RenewDeadline.Duration/2)
		defer cancel()
		lease, err := f.lease(ctx, e.ResourceNamespace, e.ResourceName)
		a = f.judge(e, lease, err)
	} else {
		a.span = refusalInterval
	}
	was := f.last.Swap(a)
	if logger := klog.FromContext(f.ctx); a.err != nil && (was == nil || was.err == nil) {
		logger.Error(a.err, "Writes to the API server are held back")
	} else if a.err == nil && was != nil && was.err != nil {
		logger.Info("Writes to the API server go on: this scheduler holds the lease")
	}
	return nil, nil
}

// judge makes an answer of the lease that was read.
func (f *fence) judge(e election, lease *coordinationv1.Lease, err error) *answer {
	now := f.clock.Now()
	refused := func(err error) *answer { return &answer{err: err, from: now, span: refusalInterval} }
	if err != nil {
		return refused(fmt.Errorf("the lease of this scheduler cannot be read: %w", err))
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	f.mu.Lock()
	self := f.identifyLocked(e, holder, now)
	f.mu.Unlock()
	switch {
	case self == "":
		return refused(errUnknown)
	case holder != self:
		return refused(fmt.Errorf("another scheduler leads: %q holds the lease of %q", holder, self))
	case lease.Spec.RenewTime == nil:
		return refused(errExpired)
	}
	// A time that is still to come was written before the clock was set back.
	span := e.RenewDeadline.Duration - max(0, now.Round(0).Sub(lease.Spec.RenewTime.Time))
	if span <= 0 {
		return refused(errExpired)
	}
	return &answer{from: now, span: span}
}

// ledLocked reports whether the elector says, or said once, that it leads. The caller holds f.mu.
func (f *fence) ledLocked() bool {
	if f.self != "" || f.began {
		return true
	}
	now := f.clock.Now() // before the look
	if !f.leads() {
		f.free = now
		return false
	}
	f.began = true
	return true
}

// identifyLocked returns the name of this process in the lease, which the elector keeps to itself, or "" when it is not
// known yet. Who holds the lease within leaseDuration of the time that this process did not lead is this process, as no
// other one could take it since. When that time has passed, because the process was stopped at that moment, it is known
// as soon as the elector has had the time to notice that it leads no more and still says that it does. The caller holds
// f.mu.
func (f *fence) identifyLocked(e election, holder string, now time.Time) string {
	if f.self != "" || holder == "" {
		return f.self
	}
	settled := time.Duration(f.polls)*pollInterval > e.settledAfter()
	if age(f.free, now) < e.LeaseDuration.Duration || settled && f.leads() {
		f.self = holder
		klog.FromContext(f.ctx).V(2).Info("This scheduler leads", "identity", holder)
	}
	return f.self
}

// look finds out the name of this process in the lease, when its elector begins to lead. leading is what Leader says,
// which is never before the configuration is published.
func (f *fence) look(leading func() bool) {
	_ = wait.PollUntilContextCancel(f.ctx, pollInterval, true, func(context.Context) (bool, error) {
		return leading() && !f.election().LeaderElect || f.known(), nil
	})
}

// hasLed reports whether a look has found that the elector leads.
func (f *fence) hasLed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began
}

// known reports whether there is nothing left to find out.
func (f *fence) known() bool {
	f.mu.Lock()
	led := f.ledLocked()
	if led {
		f.polls++ // a pause does not count
	}
	known := f.self != ""
	f.mu.Unlock()
	if led && !known {
		<-f.reads.DoChan("", f.read)
	}
	return known
}
