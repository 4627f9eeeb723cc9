package leader

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

var (
	errExpired = errors.New("the lease of this scheduler has run out, and another one may lead")
	errEnding  = errors.New("this scheduler is about to end, and another one may lead already")
)

// Election is what a process knows of its scheduler's leader election: what its elector has written. Make one with
// NewElection for each scheduler. Its methods may be called from several goroutines.
type Election struct {
	clock clock.PassiveClock
	won   chan struct{} // closed when the lease is held for the first time, or at once without leader election

	terms atomic.Pointer[terms] // nil before Observe, and without leader election
	proof atomic.Pointer[proof] // nil before the lease is held for the first time
	ended atomic.Bool           // the lease is being given back
}

// terms are the fixed terms of an election.
type terms struct {
	name          string // the lease's, as "namespace/name"
	renewDeadline time.Duration
	retryPeriod   time.Duration
}

// proof is a write of the lease that the API server has accepted.
type proof struct {
	began   time.Time     // when it was sent
	renewed chan struct{} // closed when there is a newer one
}

// NewElection returns an Election of which nothing is known yet.
func NewElection() *Election { return newElection(clock.RealClock{}) }

func newElection(c clock.PassiveClock) *Election {
	return &Election{clock: c, won: make(chan struct{})}
}

// Observe has the Election stand between an elector, which is not made yet, and the lock in its configuration; nil says
// that there is no leader election. It is called once, between app.Setup and app.Run of kube-scheduler.
func (e *Election) Observe(config *leaderelection.LeaderElectionConfig) {
	if config == nil {
		close(e.won)
		return
	}
	e.terms.Store(&terms{name: config.Lock.Describe(), renewDeadline: config.RenewDeadline, retryPeriod: config.RetryPeriod})
	config.Lock = &observedLock{Interface: config.Lock, election: e}
}

func (e *Election) lease() string {
	if t := e.terms.Load(); t != nil {
		return t.name
	}
	return ""
}

// record takes in that a write of the lease which began at a time was accepted. The elector writes one at a time.
func (e *Election) record(began time.Time) {
	last := e.proof.Swap(&proof{began: began, renewed: make(chan struct{})})
	if last == nil {
		close(e.won)
	} else {
		close(last.renewed)
	}
}

// age is how much time has passed, by the clock that says more: the monotonic one stands still while the machine
// sleeps, the other can be set.
func age(from, now time.Time) time.Duration {
	return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))
}

// confirm returns nil when the process may write to the API server: it has no leader election, or has not led yet (what
// it writes then has nothing to do with leading), or holds the lease. A proof that is too old is waited for, as long as
// the elector may take for its next attempt; confirm returns early when ctx ends.
func (e *Election) confirm(ctx context.Context) error {
	t, p := e.terms.Load(), e.proof.Load()
	switch {
	case t == nil || p == nil:
		return nil
	case e.ended.Load():
		return errEnding
	case age(p.began, e.clock.Now()) < t.renewDeadline:
		return nil
	}
	timeout := time.NewTimer(t.retryPeriod)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
	case <-p.renewed:
	}
	// The process may have been stopped since.
	if e.ended.Load() {
		return errEnding
	}
	if since := age(e.proof.Load().began, e.clock.Now()); since >= t.renewDeadline {
		return fmt.Errorf("%w: it was renewed %s ago for the last time", errExpired, since.Round(time.Second))
	}
	return nil
}

// observedLock is an elector's lock, of which the Election notes the writes.
type observedLock struct {
	resourcelock.Interface

	election *Election
	// holder is who held the lease when the elector last read it. An elector reads and writes from one goroutine.
	holder string
}

// Get implements resourcelock.Interface.
func (l *observedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *observedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *observedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

// write calls write, which an elector does for one record at a time, and notes what follows from it.
func (l *observedLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	held := record.HolderIdentity == l.Identity()
	if !held {
		l.election.ended.Store(true) // before others can take it
		// An elector that was stopped takes itself for the holder until its next attempt, and gives back what it reads
		// then (tryRelease of client-go): a lease that another process holds.
		if l.holder != "" && l.holder != l.Identity() {
			return fmt.Errorf("the lease is not given back: %s holds it", l.holder)
		}
	}
	began := l.election.clock.Now()
	err := write(ctx, record)
	if err == nil && held {
		l.election.record(began)
	}
	return err
}
