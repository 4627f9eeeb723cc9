package transport

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"

	"zonewise.dev/internal/perscheduler"
)

const (
	// retryInterval is the least pause between two attempts of a watch; the most is twice as long.
	retryInterval = 500 * time.Millisecond
	// retryLimit is for how long a watch is tried before its informer hears of it.
	retryLimit = time.Minute
	// startGrace is for how long after it could not be reached an API server may refuse watches because it is starting.
	startGrace = 15 * time.Second
)

// WatchHandle is the part of the framework's handle that RetryWatches needs.
type WatchHandle interface {
	Handle
	SharedInformerFactory() informers.SharedInformerFactory
}

// RetryWatches has the watches of the scheduler behind h wait for an API server that cannot be reached, with an attempt
// every second, for up to a minute. An informer of client-go that is refused a watch waits instead for a time that
// doubles, up to a minute, and goes on with that pause when the API server is back: the scheduler places pods by an old
// view meanwhile. For a while after the API server could not be reached, it may also refuse a watch because it is
// starting.
//
// It concerns the clients that [Wrap] does, with the same conditions. Further calls for one scheduler do nothing.
func RetryWatches(ctx context.Context, h WatchHandle) {
	perscheduler.Get(ctx, h, "watches", func() bool {
		r := &retries{ctx: ctx}
		return Wrap(h, r.around)
	})
}

// retries is what all watches of a scheduler know together.
type retries struct {
	ctx context.Context // the scheduler's
	// lost is when the API server could not be reached for the last time, in nanoseconds since 1970; away says that
	// this was logged.
	lost atomic.Int64
	away atomic.Bool
}

func (r *retries) around(next http.RoundTripper) http.RoundTripper {
	return &watchTransport{retries: r, next: next}
}

// watchTransport is where requests leave.
type watchTransport struct {
	*retries
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *watchTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !isWatch(request) {
		return t.next.RoundTrip(request)
	}
	ctx := request.Context()
	for start := time.Now(); ; {
		response, err := t.next.RoundTrip(request) // a GET without a body can be sent again
		if ctx.Err() != nil || time.Since(start) > retryLimit || !t.again(response, err) {
			return response, err
		}
		if response != nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16)) // lets the connection be used again
			_ = response.Body.Close()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait.Jitter(retryInterval, 1)):
		}
	}
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *watchTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// again reports whether the API server is away, or may be starting.
func (r *retries) again(response *http.Response, err error) bool {
	logger := klog.FromContext(r.ctx)
	if err != nil {
		r.lost.Store(time.Now().UnixNano())
		if !r.away.Swap(true) {
			logger.Info("The API server cannot be reached; watches wait for it", "err", err)
		}
		return true
	}
	if response.StatusCode < http.StatusBadRequest {
		if r.away.Swap(false) {
			logger.Info("The API server answers again")
		}
		return false
	}
	return starting(response.StatusCode) && time.Since(time.Unix(0, r.lost.Load())) < startGrace
}

// starting reports whether an API server that is starting may answer so: it does not know its users, nor their roles,
// nor what it has stored yet.
func starting(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return true
	}
	return code >= http.StatusInternalServerError
}

func isWatch(request *http.Request) bool {
	switch request.URL.Query().Get("watch") {
	case "1", "true":
		return request.Method == http.MethodGet
	}
	return false
}
