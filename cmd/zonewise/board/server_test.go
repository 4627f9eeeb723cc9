package board

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// eventually bounds every wait.
const eventually = 60 * time.Second

// script is a source whose page the test writes.
type script struct {
	changed chan struct{}

	mu    sync.Mutex // guards what follows
	page  Page
	calls int
}

func newScript() *script {
	return &script{changed: make(chan struct{}, 1), page: Page{Cluster: "prod", Summary: "all is well"}}
}

func (s *script) Page() *Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	page := s.page
	return &page
}

func (s *script) Changed() <-chan struct{} { return s.changed }

func (s *script) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *script) change(f func(*Page)) {
	s.mu.Lock()
	f(&s.page)
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// serve runs a server until the test ends or stop is called.
func serve(t *testing.T, source Source) (s *Server, stop func()) {
	t.Helper()
	s, err := Listen(t.Context(), 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, source) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return s, stop
}

func ask(t *testing.T, method, url, host string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	require.NoError(t, err)
	if host != "" {
		r.Host = host
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(body)
}

func TestWhoIsAnswered(t *testing.T) {
	s, _ := serve(t, newScript())
	base := strings.TrimSuffix(s.URL(), s.token+"/")
	_, port, err := net.SplitHostPort(s.listener.Addr().String())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(s.token), 26, "130 bits")
	for _, tc := range []struct {
		name, method, url, host string
		code                    int
	}{
		{"the address", "GET", s.URL(), "", 200},
		{"by the name localhost", "GET", s.URL(), "localhost:" + port, 200},
		{"by the other loopback address", "GET", s.URL(), "[::1]:" + port, 200},
		{"without the slash", "GET", base + s.token, "", 308},
		{"no token", "GET", base, "", 403},
		{"another token", "GET", base + strings.Repeat("A", len(s.token)) + "/", "", 403},
		{"a part of the token", "GET", base + s.token[:10] + "/", "", 403},
		{"no token for events", "GET", base + "events", "", 403},
		{"nothing there", "GET", s.URL() + "etc/passwd", "", 404},
		{"a name that leads here", "GET", s.URL(), "evil.example.com:" + port, 421},
		{"a tunnel from port 80", "GET", s.URL(), "localhost", 200},
		{"a tunnel from another port", "GET", s.URL(), "localhost:9000", 200},
		{"a tunnel over IPv6", "GET", s.URL(), "[::1]:9000", 200},
		{"another machine", "GET", s.URL(), "192.0.2.1:" + port, 421},
		{"POST", "POST", s.URL(), "", 405},
		{"HEAD", "HEAD", s.URL(), "", 405},
		{"OPTIONS", "OPTIONS", s.URL(), "", 405},
		{"DELETE", "DELETE", base, "", 405},
	} {
		t.Run(tc.name, func(t *testing.T) {
			response, body := ask(t, tc.method, tc.url, tc.host)
			require.Equal(t, tc.code, response.StatusCode)
			require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
			require.Equal(t, "no-store", response.Header.Get("Cache-Control"))
			require.Equal(t, "no-referrer", response.Header.Get("Referrer-Policy"))
			policy := response.Header.Get("Content-Security-Policy")
			require.Contains(t, policy, "default-src 'none'")
			require.Contains(t, policy, "frame-ancestors 'none'")
			require.NotContains(t, policy, "unsafe")
			if tc.code == 200 {
				require.Contains(t, body, "all is well")
			} else {
				require.NotContains(t, body, "all is well")
			}
			if tc.code >= 400 {
				require.NotContains(t, body, s.token)
			}
			if tc.code == 405 {
				require.Equal(t, "GET", response.Header.Get("Allow"))
			}
		})
	}
}

func TestThePageLoadsNothing(t *testing.T) {
	s, _ := serve(t, newScript())
	_, body := ask(t, "GET", s.URL(), "")
	require.NotContains(t, body, "http://")
	require.NotContains(t, body, "https://")
	require.NotContains(t, body, " src=")
	require.NotContains(t, body, "@import")
	require.NotContains(t, body, " style=")
	require.NotContains(t, body, " onclick=")
}

// stream reads events until one is complete.
func stream(t *testing.T, r *bufio.Reader) (event string, u update) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "event: "):
			event = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &u))
		case line == "" && event != "":
			return event, u
		}
	}
}

func open(t *testing.T, s *Server) *bufio.Reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"events", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, 200, response.StatusCode)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	return bufio.NewReader(response.Body)
}

func TestEventsCarryWhatChanges(t *testing.T) {
	source := newScript()
	s, stop := serve(t, source)
	first, second := open(t, s), open(t, s)
	for _, r := range []*bufio.Reader{first, second} {
		event, u := stream(t, r)
		require.Equal(t, "board", event)
		require.Len(t, u.Sections, len(sections), "all of it to begin with")
		require.Equal(t, "prod · Zonewise board", u.Title)
	}
	source.change(func(p *Page) { p.Banner = "a zone\nis lost" })
	for _, r := range []*bufio.Reader{first, second} {
		_, u := stream(t, r)
		require.Len(t, u.Sections, 1)
		require.Contains(t, u.Sections["head"], "a zone\nis lost")
	}
	stop()
	for _, r := range []*bufio.Reader{first, second} {
		event, _ := stream(t, r)
		require.Equal(t, "end", event)
		_, err := r.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}
}

func TestTooManyPages(t *testing.T) {
	s, _ := serve(t, newScript())
	for range mostViewers {
		open(t, s)
	}
	response, body := ask(t, "GET", s.URL()+"events", "")
	require.Equal(t, 503, response.StatusCode)
	require.Contains(t, body, "32 pages are open")
}

func TestListen(t *testing.T) {
	s, _ := serve(t, newScript())
	require.True(t, s.listener.Addr().(*net.TCPAddr).IP.IsLoopback())
	_, err := Listen(t.Context(), s.listener.Addr().(*net.TCPAddr).Port)
	require.ErrorIs(t, err, ErrPortTaken)
	other, err := Listen(t.Context(), 0)
	require.NoError(t, err)
	require.NotEqual(t, s.token, other.token)
	require.NoError(t, other.listener.Close())
}

// TestFramesAreCoalesced plays a cluster that never rests: pages are made at most twice a second, and only while
// somebody looks.
func TestFramesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScript()
		source.changed = make(chan struct{}, 1) // of this bubble
		f := newFeed(source)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.run(ctx) })
		running.Go(func() {
			for ctx.Err() == nil {
				source.change(func(*Page) {})
				time.Sleep(time.Millisecond)
			}
		})
		defer running.Wait()
		defer cancel()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Zero(t, source.made(), "nobody looks")

		f.viewers.Add(1)
		f.wake()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.InDelta(t, 20, source.made(), 1)

		f.viewers.Add(-1)
		time.Sleep(time.Second) // the page that was begun
		before := source.made()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, source.made(), before+1)
	})
}
