package board

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// mostViewers is how many pages may be open at once.
const mostViewers = 32

// heartbeat is how often an idle stream sends a sign of life; writeTimeout is how long a browser may take for an
// update.
const (
	heartbeat    = 15 * time.Second
	writeTimeout = 30 * time.Second
)

// Server shows the pages of a source on the loopback interface, to clients that know its token.
type Server struct {
	listener net.Listener
	feed     *feed
	token    string
	// ending is closed when the server ends, so that streams end, too.
	ending chan struct{}
}

// ErrPortTaken says that another program listens on the port.
var ErrPortTaken = errors.New("the port is taken")

// Listen takes a port of 127.0.0.1, a free one when port is 0. Errors are ErrPortTaken, or the system's.
func Listen(ctx context.Context, port int) (*Server, error) {
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", at)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: %w", at, ErrPortTaken)
	}
	if err != nil {
		return nil, err
	}
	return &Server{listener: listener, token: rand.Text(), ending: make(chan struct{})}, nil
}

// URL is the address of the page with the token in it.
func (s *Server) URL() string {
	return "http://" + s.listener.Addr().String() + "/" + s.token + "/"
}

// Run serves the pages of a source until the context ends, and returns nil then.
func (s *Server) Run(ctx context.Context, source Source) error {
	s.feed = newFeed(source)
	feeding, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { s.feed.run(feeding) })
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0), // it would write about broken connections
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.listener) }()
	select {
	case err := <-failed:
		close(s.ending)
		return err
	case <-ctx.Done():
		close(s.ending)
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	// Do not wait for browsers that do not read.
	if server.Shutdown(limited) != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler answers requests.
func (s *Server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": contentPolicy + "; frame-ancestors 'none'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		if !isHost(r.Host) {
			http.Error(w, "This is not the address of the board: open the address that it printed.", http.StatusMisdirectedRequest)
			return
		}
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "The board is read-only.", http.StatusMethodNotAllowed)
			return
		}
		token, path, slash := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if !s.isToken(token) {
			http.Error(w, "Open the address that the board printed when it started: it contains a token.", http.StatusForbidden)
			return
		}
		switch {
		case !slash:
			http.Redirect(w, r, "/"+s.token+"/", http.StatusPermanentRedirect)
		case path == "":
			s.servePage(w, r)
		case path == "events":
			s.serveEvents(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// isHost reports whether a request names this machine, at whatever port: that of a tunnel (ssh -L, a container's) may
// be another. A foreign page whose name was made to resolve to this address (DNS rebinding) sends that name.
func isHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// isToken compares in constant time, which reveals neither the token nor its length.
func (s *Server) isToken(token string) bool {
	want, got := sha256.Sum256([]byte(s.token)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// servePage sends the whole page.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	f, err := s.feed.nextFrame(r.Context())
	if err != nil {
		return // nobody waits any more
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	live := *f
	live.Events = "events"
	_ = live.writePage(w) // only the connection can fail now: the error cannot be reported
}

// update is what an event carries.
type update struct {
	Title    string                   `json:"title"`
	Sections map[string]template.HTML `json:"sections"`
}

// serveEvents sends what changes, as server-sent events.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	defer s.feed.viewers.Add(-1)
	if s.feed.viewers.Add(1) > mostViewers {
		http.Error(w, fmt.Sprintf("%d pages are open: close one.", mostViewers), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	write := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := w.Write([]byte(text))
		return err == nil && out.Flush() == nil
	}
	if !write("retry: 2000\n\n") {
		return
	}
	have := map[string]template.HTML{}
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	s.feed.wake()
	for {
		f, next := s.feed.currentFrame()
		if f != nil {
			if changes := f.changesFor(have); len(changes) > 0 {
				// Marshal escapes line ends, which would end the event.
				data, err := json.Marshal(update{Title: f.Title, Sections: changes})
				if err != nil || !write("event: board\ndata: "+string(data)+"\n\n") {
					return
				}
			}
		}
		select {
		case <-next:
		case <-alive.C:
			if !write(": alive\n\n") {
				return
			}
		case <-s.ending:
			write("event: end\ndata: {}\n\n")
			return
		case <-r.Context().Done():
			return
		}
	}
}
