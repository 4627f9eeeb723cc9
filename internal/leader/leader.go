package leader

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"zonewise.dev/internal/perscheduler"
)

// Handle is the part of the framework's handle that this package needs.
type Handle interface {
	SharedInformerFactory() informers.SharedInformerFactory
}

// Leader tells whether the scheduler of a handle leads. Get one with Of. Its methods may be called from several
// goroutines.
type Leader struct {
	once     sync.Once
	led      chan struct{}
	leading  atomic.Bool
	election atomic.Pointer[Election] // nil until Follow
}

// Of returns the Leader of the scheduler behind h, which all plugins and profiles share. It is dropped when ctx, which
// is the scheduler's, ends.
func Of(ctx context.Context, h Handle) *Leader {
	return perscheduler.Get(ctx, h, "leader", func() *Leader { return &Leader{led: make(chan struct{})} })
}

// Follow has the scheduler behind h lead as soon as the election says so and its informers have synced. Further calls
// for one scheduler do nothing.
func Follow(ctx context.Context, h Handle, election *Election) {
	l := Of(ctx, h)
	if !l.election.CompareAndSwap(nil, election) {
		return
	}
	pods := h.SharedInformerFactory().Core().V1().Pods().Informer()
	go func() {
		select {
		case <-ctx.Done():
		case <-election.won:
			if cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
				l.lead()
			}
		}
	}()
}

// Leading returns a channel that is closed once this scheduler leads.
func (l *Leader) Leading() <-chan struct{} { return l.led }

// Lease returns the namespace and name of the lease under which this scheduler leads, as "namespace/name"; empty
// without leader election, and as long as it is not known.
func (l *Leader) Lease() string {
	if election := l.election.Load(); election != nil {
		return election.lease()
	}
	return ""
}

// Cycle is called by a plugin in each scheduling cycle, which only a leader runs. It costs an atomic read.
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
