package leader

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

// lock is the API server's side of a lease: what it does to a write.
type lock struct {
	clock  *clocktesting.FakePassiveClock
	fails  error  // the write is refused
	holder string // of the lease, when it is read; empty if it cannot be read
	writes int
	during time.Duration // how long the process is stopped while the answer is on its way
}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.holder == "" {
		return nil, nil, errors.New("not asked here")
	}
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, nil
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *lock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	l.clock.SetTime(l.clock.Now().Add(l.during))
	l.writes++
	return l.fails
}
func (l *lock) RecordEvent(string) {}
func (l *lock) Identity() string   { return "me" }
func (l *lock) Describe() string   { return "kube-system/zonewise-scheduler" }

// process is one that takes part in an election with upstream's terms. It lives in a bubble, whose time passes while a
// write waits; the clock is what it reads.
type process struct {
	*Election
	t      *testing.T
	clock  *clocktesting.FakePassiveClock
	server *lock
	lock   resourcelock.Interface
}

func newProcess(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, clock: clocktesting.NewFakePassiveClock(time.Now().Round(0))}
	p.server = &lock{clock: p.clock}
	p.Election = newElection(p.clock)
	config := &leaderelection.LeaderElectionConfig{Lock: p.server, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
	p.Observe(config)
	p.lock = config.Lock
	return p
}

// renew has the elector write the lease.
func (p *process) renew() {
	err := p.lock.Update(p.t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})
	require.ErrorIs(p.t, err, p.server.fails)
}

func (p *process) pass(d time.Duration) { p.clock.SetTime(p.clock.Now().Add(d)) }

// TestConfirm: a process writes only while no other one can have taken its lease.
func TestConfirm(t *testing.T) {
	for _, c := range []struct {
		name  string
		given func(p *process)
		want  error
	}{
		{"has not led yet", func(*process) {}, nil},
		{"holds the lease", func(p *process) { p.renew() }, nil},
		{"up to the deadline of a renewal", func(p *process) { p.renew(); p.pass(10*time.Second - 1) }, nil},
		{"stopped for longer", func(p *process) { p.renew(); p.pass(10 * time.Second) }, errExpired},
		{"renewed since", func(p *process) { p.renew(); p.pass(9 * time.Second); p.renew(); p.pass(9 * time.Second) }, nil},
		{"a renewal is refused", func(p *process) {
			p.renew()
			p.pass(9 * time.Second)
			p.server.fails = errors.New("conflict")
			p.renew()
			p.pass(time.Second)
		}, errExpired},
		{"stopped while the answer to its first write is on its way", func(p *process) { p.server.during = 20 * time.Second; p.renew() }, errExpired},
		{"stopped while the answer to a renewal is on its way", func(p *process) { p.renew(); p.server.during = 20 * time.Second; p.renew() }, errExpired},
		{"the clock is set back", func(p *process) { p.renew(); p.pass(-time.Hour) }, nil},
		{"the clock is set forward, and the lease is renewed", func(p *process) { p.renew(); p.pass(time.Hour); p.renew() }, nil},
		{"gives the lease back", func(p *process) {
			p.renew()
			require.NoError(p.t, p.lock.Update(p.t.Context(), resourcelock.LeaderElectionRecord{}))
		}, errEnding},
		{"cannot give it back", func(p *process) {
			p.renew()
			p.server.fails = errors.New("timeout")
			_ = p.lock.Update(p.t.Context(), resourcelock.LeaderElectionRecord{})
		}, errEnding},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(t)
				c.given(p)
				require.ErrorIs(t, p.confirm(t.Context()), c.want)
			})
		})
	}
}

func TestWithoutElectionNothingIsHeldBack(t *testing.T) {
	e := NewElection()
	require.NoError(t, e.confirm(t.Context()), "nothing is known yet")
	e.Observe(nil)
	require.NoError(t, e.confirm(t.Context()))
}

// TestAWriteWaitsForTheElector: after a stop the elector's next attempt decides.
func TestAWriteWaitsForTheElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t)
		p.renew()
		p.pass(12 * time.Second)
		answers := make(chan error, 3)
		for range cap(answers) {
			go func() { answers <- p.confirm(t.Context()) }()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, answers)
		p.renew()
		for range cap(answers) {
			require.NoError(t, <-answers, "it has held the lease all the time")
		}

		p.pass(12 * time.Second)
		began := time.Now()
		require.ErrorIs(t, p.confirm(t.Context()), errExpired)
		require.Equal(t, 2*time.Second, time.Since(began), "the elector's retry period")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.confirm(ctx), context.Canceled)
	})
}

// body remembers whether it was closed.
type body struct {
	*strings.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func TestWhatIsHeldBack(t *testing.T) {
	var sent []string
	f := &fence{ctx: t.Context(), confirm: func(context.Context) error { return errExpired }}
	transport := f.around(roundTripper(func(r *http.Request) { sent = append(sent, r.Method+" "+r.URL.Path) }))
	for _, request := range []string{
		"GET /api/v1/pods", "HEAD /api/v1/pods",
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/zonewise-scheduler",
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews", "POST /apis/authentication.k8s.io/v1/tokenreviews",
		"POST /api/v1/namespaces/shop/pods/web/binding", "POST /api/v1/namespaces/shop/pods/web/eviction", "DELETE /api/v1/namespaces/shop/pods/web",
		"PATCH /api/v1/namespaces/shop/pods/web/status", "PATCH /apis/zonewise.dev/v1alpha1/zonereservations/r/status",
	} {
		method, path, _ := strings.Cut(request, " ")
		content := &body{Reader: strings.NewReader("{}")}
		before := len(sent)
		response, err := transport.RoundTrip(httptest.NewRequest(method, path, content))
		if err == nil {
			require.NoError(t, response.Body.Close())
		}
		if strings.HasPrefix(path, "/apis/auth") || strings.HasPrefix(path, "/apis/coord") || method == http.MethodGet || method == http.MethodHead {
			require.NoError(t, err, request)
			require.Equal(t, request, sent[before])
			continue
		}
		require.ErrorContains(t, err, "held back: the lease of this scheduler has run out", request)
		require.Len(t, sent, before)
		require.True(t, content.closed, request)
	}
}

type roundTripper func(*http.Request)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

type clientHandle struct {
	handle

	client kubernetes.Interface
	config *rest.Config
}

func (h clientHandle) ClientSet() kubernetes.Interface { return h.client }
func (h clientHandle) KubeConfig() *rest.Config        { return h.config }

// TestFence: the scheduler's clientset and the clients that are made later are fenced, once each, with the elector of
// client-go, up to the end of the process.
func TestFence(t *testing.T) {
	var binds int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		binds++ // one at a time
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	h, election, elector := clientHandle{newHandle(), client, config}, NewElection(), newElectionConfig()
	Fence(t.Context(), h, election)
	Fence(t.Context(), h, election) // another profile
	election.Observe(elector)
	later, err := kubernetes.NewForConfig(h.config)
	require.NoError(t, err)
	stop := elect(t, elector)
	<-election.won

	bind := func(client kubernetes.Interface) error {
		return client.CoreV1().Pods("shop").Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{})
	}
	for i, c := range []kubernetes.Interface{client, later} {
		require.NoError(t, bind(c))
		require.Equal(t, i+1, binds)
	}
	stop()
	for _, c := range []kubernetes.Interface{client, later} {
		require.ErrorContains(t, bind(c), "held back: "+errEnding.Error())
	}
	require.Equal(t, 2, binds)
}

func TestFenceNeedsAnAPIServer(t *testing.T) {
	Fence(t.Context(), clientHandle{handle: newHandle()}, NewElection())
}

// TestLeaseOfAnotherIsNotGivenBack: a process that was stopped, and ends because its lease has run out, leaves the
// lease to the one that holds it now. client-go's elector reads it, does not look at who holds it, and would write it
// without a holder.
func TestLeaseOfAnotherIsNotGivenBack(t *testing.T) {
	for holder, writes := range map[string]int{"me": 1, "other": 0} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcess(t)
			p.server.holder = holder
			_, _, err := p.lock.Get(t.Context())
			require.NoError(t, err)
			err = p.lock.Update(t.Context(), resourcelock.LeaderElectionRecord{})
			require.Equal(t, writes, p.server.writes, holder)
			require.Equal(t, writes == 0, err != nil, holder)
		})
	}
}
