package leader

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/internal/transport"
)

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
// a plugin's factory under app.NewSchedulerCommand. Further calls for one scheduler do nothing. Without an API server
// it does nothing. An error says that the configuration cannot be used.
func Fence(ctx context.Context, h ClientHandle) error {
	l := Of(ctx, h)
	return perscheduler.Get(ctx, h, "fence", func() *raised { return &raised{raise(ctx, h, l)} }).err
}

// raised is a fence that a scheduler has, or why it cannot have one.
type raised struct{ err error }

func raise(ctx context.Context, h ClientHandle, l *Leader) error {
	if h.KubeConfig() == nil {
		return nil
	}
	own := rest.CopyConfig(h.KubeConfig())
	own.RateLimiter, own.QPS = nil, -1 // a look at the lease does not wait for those that wait for it
	leases, err := coordinationclient.NewForConfig(own)
	if err != nil {
		return fmt.Errorf("reading the lease: %w", err)
	}
	f := newFence(ctx, clock.RealClock{}, func(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
		return leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	})
	if transport.Wrap(h, f.around) {
		l.held.Store(ptr.To(f.hasLed))
		go f.look(l.leading.Load)
	}
	return nil
}

func (f *fence) around(next http.RoundTripper) http.RoundTripper {
	return &fenced{fence: f, next: next}
}

// fenced is where requests leave.
type fenced struct {
	fence *fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *fenced) RoundTrip(request *http.Request) (*http.Response, error) {
	if writes(request) {
		if err := t.fence.confirm(request.Context()); err != nil {
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
func (t *fenced) WrappedRoundTripper() http.RoundTripper { return t.next }

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
