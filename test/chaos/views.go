package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// view is what a scheduler is shown of a resource. A proxy's lock guards it.
type view struct {
	streams map[*stream]bool
	// late is until when what has changed is kept back: meanwhile, what other watches say overtakes it. twice is until when each
	// change is shown a second time. again means that the next watch is to begin with a list.
	late, twice time.Time
	again       bool
}

func (p *proxy) viewLocked(resource string) *view {
	v := p.views[resource]
	if v == nil {
		v = &view{streams: map[*stream]bool{}}
		p.views[resource] = v
	}
	return v
}

// manner is something that happens to a scheduler's view of a resource, from a moment on.
type manner string

const (
	late    manner = "late"           // for some time the watch says nothing; then it says everything
	twice   manner = "twice"          // for some time the watch says everything twice
	dropped manner = "dropped"        // the watch ends, and another one cannot begin where it ended
	killed  manner = "leader killed"  // the scheduler is killed
	stale   manner = "late and alone" // the scheduler is killed, and the view of the other one is late
)

// perturb has it happen to the scheduler's view of a resource.
func (p *proxy) perturb(how manner, resource string, lasts time.Duration) {
	p.mu.Lock()
	v := p.viewLocked(resource)
	var cut []*stream
	switch how {
	case late, stale:
		v.late = time.Now().Add(lasts)
	case twice:
		v.twice = time.Now().Add(lasts)
	case dropped:
		v.again = true
		for s := range v.streams {
			cut = append(cut, s)
		}
	}
	p.mu.Unlock()
	for _, s := range cut {
		_ = s.Close() // it is cut off
	}
}

// refuses reports whether a watch is to begin with a list, and cannot go on from where it was.
func (p *proxy) refuses(u *url.URL, resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.viewLocked(resource)
	if !v.again || u.Query().Get("sendInitialEvents") == "true" || u.Query().Get("resourceVersion") == "" {
		return false
	}
	v.again = false
	return true
}

// expired answers as the API server does when it does not remember what a watch asks for.
func expired(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGone)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // a client that has gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version",
	})
}

// stream is a watch on its way to a scheduler, line by line.
type stream struct {
	proxy    *proxy
	resource string
	body     io.ReadCloser
	lines    *bufio.Reader
	rest     []byte // of what has been read
	once     sync.Once
	closed   chan struct{}
}

// stream has a watch's answer go through the view of its resource.
func (p *proxy) stream(resource string, body io.ReadCloser) *stream {
	s := &stream{proxy: p, resource: resource, body: body, lines: bufio.NewReader(body), closed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.viewLocked(resource).streams[s] = true
	return s
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.proxy.mu.Lock()
		defer s.proxy.mu.Unlock()
		delete(s.proxy.viewLocked(s.resource).streams, s)
	})
	return s.body.Close()
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	if len(s.rest) == 0 {
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		if err := s.wait(); err != nil {
			return 0, err
		}
		if s.rest = line; s.again(line) {
			s.rest = append(line, line...)
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// wait returns when the view is not late any more.
func (s *stream) wait() error {
	for {
		s.proxy.mu.Lock()
		left := time.Until(s.proxy.viewLocked(s.resource).late)
		s.proxy.mu.Unlock()
		if left <= 0 {
			return nil
		}
		select {
		case <-s.closed:
			return io.ErrUnexpectedEOF
		case <-time.After(left):
		}
	}
}

// again reports whether a line is to be said twice. Bookmarks are not: the first ends a list.
func (s *stream) again(line []byte) bool {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	if time.Now().After(s.proxy.viewLocked(s.resource).twice) {
		return false
	}
	for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		if bytes.HasPrefix(line, []byte(`{"type":"`+kind+`"`)) {
			return true
		}
	}
	return false
}

// trigger does something at the n-th write of the scheduler that leads.
type trigger struct {
	kill bool
	// fire is called for the n-th write before it reaches the API server, with the proxy of its scheduler.
	fire func(*proxy)

	mu   sync.Mutex // guards what follows
	left int
	at   time.Time // when it fired
}

// arm has the proxy's scheduler set off a trigger.
func (p *proxy) arm(t *trigger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trigger = t
}

// written counts a write, and reports whether its scheduler is to be killed when it is done.
func (p *proxy) written() (kill bool) {
	p.mu.Lock()
	t := p.trigger
	p.mu.Unlock()
	if t == nil {
		return false
	}
	t.mu.Lock()
	t.left--
	now := t.left == 0
	if now {
		t.at = time.Now()
	}
	t.mu.Unlock()
	if now {
		t.fire(p)
	}
	return now && t.kill
}

// fired is when the trigger went off, or zero.
func (t *trigger) fired() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}
