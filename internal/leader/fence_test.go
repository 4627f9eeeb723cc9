package leader

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// cluster has a lease, and a fence of the process that calls itself "me".
type cluster struct {
	*fence
	clock   *clocktesting.FakePassiveClock
	leading atomic.Bool
	cancel  context.CancelFunc

	mu      sync.Mutex // guards what follows
	holder  string
	renewed time.Time
	failure error
	during  time.Duration // how long the process is stopped with the answer on its way
	reads   int
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{clock: clocktesting.NewFakePassiveClock(time.Now().Round(0))}
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	c.fence = newFence(ctx, c.clock, c.get)
	c.fence.leads = c.leading.Load
	c.fence.election = func() election {
		return election{
			LeaderElect: true, ResourceNamespace: "kube-system", ResourceName: "zonewise-scheduler",
			LeaseDuration: metav1.Duration{Duration: 15 * time.Second}, RenewDeadline: metav1.Duration{Duration: 10 * time.Second}, RetryPeriod: metav1.Duration{Duration: 2 * time.Second},
		}
	}
	return c
}

func (c *cluster) get(_ context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if c.failure != nil {
		return nil, c.failure
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &c.holder, ptr.To(metav1.NewMicroTime(c.renewed))
	c.clock.SetTime(c.clock.Now().Add(c.during))
	c.during = 0
	return lease.DeepCopy(), nil
}

// renews has a process take or renew the lease.
func (c *cluster) renews(who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holder, c.renewed = who, c.clock.Now()
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cluster) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

func (c *cluster) pass(d time.Duration) { c.clock.SetTime(c.clock.Now().Add(d)) }

// leads has the process win the election and write something.
func (c *cluster) leads(t *testing.T) {
	t.Helper()
	c.renews("me")
	c.leading.Store(true)
	require.NoError(t, c.confirm(t.Context()))
	require.Equal(t, "me", c.self)
}

func TestAStoppedLeaderWritesNothing(t *testing.T) {
	c := newCluster(t)
	c.leads(t)
	c.pass(16 * time.Second)
	c.renews("other")
	require.ErrorContains(t, c.confirm(t.Context()), `another scheduler leads: "other" holds the lease of "me"`)
	reads := c.seen()
	require.Error(t, c.confirm(t.Context()))
	require.Equal(t, reads, c.seen(), "it asks seldom")

	// What the elector makes of it is the elector's business.
	c.pass(time.Second)
	c.renews("me")
	require.NoError(t, c.confirm(t.Context()))
}

func TestAStopOfAnyLengthThatOutlastsTheLeaseIsSeen(t *testing.T) {
	for stop := time.Second; stop < time.Minute; stop += time.Second {
		c := newCluster(t)
		c.leads(t)
		c.pass(stop)
		if stop >= 15*time.Second { // by then, and no sooner, another one takes it
			c.renews("other")
			require.Error(t, c.confirm(t.Context()), stop)
			continue
		}
		if stop >= 10*time.Second {
			require.ErrorIs(t, c.confirm(t.Context()), errExpired, stop)
			c.pass(refusalInterval)
		}
		c.renews("me")
		require.NoError(t, c.confirm(t.Context()), stop)
	}
}

func TestAProofCostsNoRequest(t *testing.T) {
	c := newCluster(t)
	c.leads(t)
	for range 1000 {
		require.NoError(t, c.confirm(t.Context()))
	}
	c.pass(4 * time.Second)
	require.NoError(t, c.confirm(t.Context()))
	require.Equal(t, 1, c.seen())

	// One that is in use is renewed before it ends, and the write need not wait for it.
	c.renews("me")
	c.pass(2 * time.Second)
	require.NoError(t, c.confirm(t.Context()))
	require.Eventually(t, func() bool { return c.seen() == 2 && c.last.Load().from.Equal(c.clock.Now()) }, time.Minute, time.Millisecond)
	c.pass(7 * time.Second) // 13 s after the first
	require.NoError(t, c.confirm(t.Context()))
}

func TestWritersShareOneLook(t *testing.T) {
	c := newCluster(t)
	c.leads(t)
	c.pass(20 * time.Second)
	c.renews("other")
	c.mu.Lock() // no writer is answered yet
	var wait sync.WaitGroup
	var refused atomic.Int32
	for range 100 {
		wait.Go(func() {
			if c.confirm(t.Context()) != nil {
				refused.Add(1)
			}
		})
	}
	c.mu.Unlock()
	wait.Wait()
	require.EqualValues(t, 100, refused.Load())
	require.Equal(t, 2, c.seen(), "one when it began to lead, and one for all")
}

func TestAnAnswerThatComesAfterAStopProvesNothing(t *testing.T) {
	c := newCluster(t)
	c.leads(t)
	c.pass(11 * time.Second)
	c.renews("me")
	c.set(func() { c.during = 20 * time.Second }) // the answer says "me", and is old
	require.ErrorIs(t, c.confirm(t.Context()), errExpired)
}

func TestALeaseThatCannotBeRead(t *testing.T) {
	c := newCluster(t)
	c.leads(t)
	c.set(func() { c.failure = errors.New("connection refused") })
	c.pass(9 * time.Second)
	require.NoError(t, c.confirm(t.Context()), "it is still sure of it")
	c.pass(2 * time.Second)
	require.ErrorContains(t, c.confirm(t.Context()), "cannot be read: connection refused")
	c.set(func() { c.failure = nil })
	c.renews("me")
	c.pass(refusalInterval)
	require.NoError(t, c.confirm(t.Context()))
}

func TestAClockThatIsSetBack(t *testing.T) {
	c := newCluster(t)
	c.leads(t)
	c.pass(-time.Hour) // the lease was renewed in an hour
	c.last.Store(nil)
	require.NoError(t, c.confirm(t.Context()))
	c.renews("other")
	c.pass(10 * time.Second)
	require.Error(t, c.confirm(t.Context()))
}

func TestWhoDoesNotLead(t *testing.T) {
	t.Run("no leader election", func(t *testing.T) {
		c := newCluster(t)
		c.fence.election = func() election { return election{} }
		require.NoError(t, c.confirm(t.Context()))
		c.cancel()
		require.NoError(t, c.confirm(t.Context()))
		require.Zero(t, c.seen())
	})
	t.Run("a standby replica", func(t *testing.T) {
		c := newCluster(t)
		c.renews("other")
		require.NoError(t, c.confirm(t.Context()))
		require.False(t, c.known())
		require.Zero(t, c.seen())
	})
	t.Run("one that ends", func(t *testing.T) {
		c := newCluster(t)
		c.leads(t)
		c.cancel()
		require.ErrorIs(t, c.confirm(t.Context()), errEnding)
	})
	t.Run("a writer that does not wait", func(t *testing.T) {
		c := newCluster(t)
		c.leading.Store(true)
		c.mu.Lock()
		defer c.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, c.confirm(ctx), context.Canceled)
	})
}

func TestTheNameOfThisProcess(t *testing.T) {
	t.Run("is found before anything is written", func(t *testing.T) {
		c := newCluster(t)
		require.False(t, c.known())
		c.pass(time.Minute)
		require.False(t, c.known())
		c.renews("me")
		c.leading.Store(true)
		require.False(t, c.known())
		require.True(t, c.known())
		require.Equal(t, "me", c.self)
	})
	t.Run("is not that of the one which took over in a stop", func(t *testing.T) {
		c := newCluster(t)
		require.False(t, c.known())
		c.leading.Store(true)
		c.pass(20 * time.Second)
		c.renews("other")
		require.ErrorIs(t, c.confirm(t.Context()), errUnknown)
		c.leading.Store(false) // the elector has noticed
		for range 100 {
			c.known()
		}
		require.Empty(t, c.self)
		require.Error(t, c.confirm(t.Context()))
	})
	t.Run("is found later when no other process took over in a stop", func(t *testing.T) {
		c := newCluster(t)
		c.leading.Store(true)
		c.pass(20 * time.Second)
		c.renews("me")
		for range int(14*time.Second/pollInterval) + 1 {
			require.Empty(t, c.self, "the elector may not have noticed yet")
			require.ErrorIs(t, c.confirm(t.Context()), errUnknown)
			c.known()
		}
		c.pass(refusalInterval)
		require.NoError(t, c.confirm(t.Context()))
	})
}

// body remembers whether it was closed.
type body struct {
	*strings.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func TestWhatIsHeldBack(t *testing.T) {
	c := newCluster(t)
	c.leads(t)
	c.pass(20 * time.Second)
	c.renews("other")
	var sent []string
	transport := c.around(roundTripper(func(r *http.Request) { sent = append(sent, r.Method+" "+r.URL.Path) }))
	for _, request := range []string{
		"GET /api/v1/pods", "HEAD /api/v1/pods",
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/zonewise-scheduler",
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews", "POST /apis/authentication.k8s.io/v1/tokenreviews",
		"POST /api/v1/namespaces/shop/pods/web/binding", "POST /api/v1/namespaces/shop/pods/web/eviction", "DELETE /api/v1/namespaces/shop/pods/web",
		"PATCH /api/v1/namespaces/shop/pods/web/status", "PATCH /apis/zonewise.dev/v1alpha1/zonereservations/r/status",
	} {
		method, path, _ := strings.Cut(request, " ")
		content := &body{Reader: strings.NewReader("{}")}
		r := httptest.NewRequest(method, path, content)
		before := len(sent)
		response, err := transport.RoundTrip(r)
		if err == nil {
			require.NoError(t, response.Body.Close())
		}
		if strings.HasPrefix(path, "/apis/auth") || strings.HasPrefix(path, "/apis/coord") || method == http.MethodGet || method == http.MethodHead {
			require.NoError(t, err, request)
			require.Equal(t, request, sent[before])
			continue
		}
		require.ErrorContains(t, err, "held back: another scheduler leads", request)
		require.Len(t, sent, before)
		require.True(t, content.closed, request)
	}
}

type roundTripper func(*http.Request)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}
