// Package leader tells a plugin whether its process is the one that schedules.
//
// Standby replicas of kube-scheduler build the plugins, run informers and PreEnqueue; only the leader
// may write to the API server. Plugins get no callback for the change, so this package reads what the
// process already knows about itself: the leader-election gauge that component-base keeps, and, for a
// scheduler without leader election, the configuration that it publishes under /configz. A scheduling
// cycle is a proof of its own, since standby replicas run none. A process that loses its lease exits, so
// that leading, once true, stays true.
//
// It exits late when it was stopped: from the time that it goes on to the time that its elector notices, a second
// leader is there already. Fence keeps what such a process would write away from the API server.
package leader

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/perscheduler"
)

// pollInterval is how often the state is read until the process leads: well under the default retry
// period of a lease (2 s), at a cost of one gathering of the process's metrics.
const pollInterval = 500 * time.Millisecond

// Handle is the part of the framework's handle that this package needs.
type Handle interface {
	SharedInformerFactory() informers.SharedInformerFactory
}

// Leader tells whether the scheduler of a handle leads. Get one with Of. Its methods may be called from several
// goroutines.
type Leader struct {
	once    sync.Once
	led     chan struct{}
	leading atomic.Bool
	// held reports whether the lease is held. Fence replaces it, so that a standby gathers its metrics once per
	// pollInterval, not twice.
	held atomic.Pointer[func() bool]
}

// Of returns the Leader of the scheduler behind h: one for all plugins and profiles, with one goroutine that looks
// until the scheduler leads or ctx, which is the scheduler's, ends.
func Of(ctx context.Context, h Handle) *Leader {
	return perscheduler.Get(ctx, h, "leader", func() *Leader {
		l := &Leader{led: make(chan struct{})}
		l.held.Store(ptr.To(leaseHeld))
		go l.look(ctx, h)
		return l
	})
}

// Leading returns a channel that is closed once this scheduler leads: when its informers have synced and, with leader
// election, it holds the lease.
func (l *Leader) Leading() <-chan struct{} { return l.led }

// Cycle is called by a plugin in each scheduling cycle, which only a leader runs. It costs an atomic read, and makes
// leadership independent of the process's metrics as soon as there is something to schedule.
func (l *Leader) Cycle() {
	if !l.leading.Load() {
		l.lead()
	}
}

func (l *Leader) lead() {
	l.once.Do(func() {
		l.leading.Store(true)
		close(l.led)
	})
}

func (l *Leader) look(ctx context.Context, h Handle) {
	pods := h.SharedInformerFactory().Core().V1().Pods().Informer()
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		// The scheduler publishes its configuration before it starts its informers, so once
		// they have synced the absence of leader election is a fact and not a race. A scheduler that is being built in
		// a process that holds another lease does not lead yet.
		return l.leading.Load() || pods.HasSynced() && ((*l.held.Load())() || !configured().LeaderElect), nil
	})
	if err == nil {
		l.lead()
	}
}
