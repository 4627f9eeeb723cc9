package leader

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"zonewise.dev/internal/metrics"
	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/internal/transport"
)

// fencedWrites tells operators that a leader was stopped for longer than its lease.
var fencedWrites = metrics.NewCounter(&compbasemetrics.CounterOpts{
	Namespace:      metrics.Namespace,
	Subsystem:      "leader",
	Name:           "fenced_writes_total",
	Help:           "Writes to the API server that were held back because this process could not show that it still held the lease.",
	StabilityLevel: compbasemetrics.ALPHA,
})

// ClientHandle is the part of the framework's handle that Fence needs.
type ClientHandle interface {
	Handle
	transport.Handle
}

// Fence has the clients of the scheduler behind h write to the API server only while the process can show that it holds
// the lease: a leader that was stopped, and goes on when another one leads already, binds, patches and evicts nothing.
// It concerns the handle's clientset, and every client that is made from the handle's configuration after the call; a
// write is looked at when it leaves, behind all limits and queues. What is held back fails with an error. Without
// leader election nothing is held back.
//
// It changes the clientset and the configuration, which must be the scheduler's own and not in use yet, as they are in
// a plugin's factory under app.Setup. Further calls for one scheduler do nothing. Without an API server it does
// nothing.
func Fence(ctx context.Context, h ClientHandle, election *Election) {
	perscheduler.Get(ctx, h, "fence", func() bool {
		metrics.MustRegister(fencedWrites)
		f := &fence{ctx: ctx, confirm: election.confirm}
		return transport.Wrap(h, f.around)
	})
}

// fence is what all clients of a scheduler share.
type fence struct {
	ctx     context.Context // the scheduler's
	confirm func(context.Context) error
	closed  atomic.Bool // the last write was held back
}

func (f *fence) around(next http.RoundTripper) http.RoundTripper {
	return &fencedTransport{fence: f, next: next}
}

// check returns why a write is held back, or nil.
func (f *fence) check(ctx context.Context) error {
	err := f.confirm(ctx)
	switch logger := klog.FromContext(f.ctx); {
	case ctx.Err() != nil: // says nothing about the lease
	case err != nil && !f.closed.Swap(true):
		logger.Error(err, "Writes to the API server are held back")
	case err == nil && f.closed.Load() && f.closed.Swap(false):
		logger.Info("Writes to the API server go on: this scheduler holds the lease")
	}
	return err
}

// fencedTransport is where requests leave.
type fencedTransport struct {
	fence *fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if writes(request) {
		if err := t.fence.check(request.Context()); err != nil {
			if request.Body != nil {
				_ = request.Body.Close() // nothing was read
			}
			fencedWrites.Inc()
			return nil, fmt.Errorf("held back: %w", err)
		}
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// writes reports whether a request changes what others see. Elections are decided by the API server, and reviews are
// questions.
func writes(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	for _, group := range []string{
		"/apis/coordination.k8s.io/", "/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/",
	} {
		if strings.Contains(request.URL.Path, group) {
			return false
		}
	}
	return true
}
