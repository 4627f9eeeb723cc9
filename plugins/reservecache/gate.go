package reservecache

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
)

// gate keeps scheduling cycles from running before the ledger has seen the cluster: the scheduler waits
// for its own informer handlers only.
type gate struct {
	synced  []cache.DoneChecker
	timeout time.Duration
	// open is set once all handlers have synced, which lasts.
	open atomic.Bool
}

func newGate(synced []cache.DoneChecker, timeout time.Duration) *gate {
	return &gate{synced: synced, timeout: timeout}
}

// wait returns nil once all handlers have synced, and an error when that takes longer than the timeout or
// ctx ends.
func (g *gate) wait(ctx context.Context) error {
	if g.open.Load() {
		return nil
	}
	timer := time.NewTimer(g.timeout)
	defer timer.Stop()
	for _, handler := range g.synced {
		select {
		case <-handler.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("the ledger has not seen all pods and nodes within %s (%s)", g.timeout, handler.Name())
		}
	}
	g.open.Store(true)
	return nil
}
