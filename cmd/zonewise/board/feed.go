package board

import (
	"context"
	"fmt"
	"html/template"
	"sync"
	"time"
)

// Source is where pages come from.
type Source interface {
	// Page returns the page as of now.
	Page(ctx context.Context) (*Page, error)
	// Changed receives when the page may have changed. It is nil if the page never changes.
	Changed() <-chan struct{}
}

// How often pages are made: at most twice a second, with at most a third of one core, and from time to time without a
// change, because pages show ages.
const (
	leastInterval = 500 * time.Millisecond
	shareOfTime   = 3
	mostInterval  = 15 * time.Second
)

// frame is a page as it is sent.
type frame struct {
	title  string
	report bool
	parts  []section
}

// feed makes frames while a page is open.
type feed struct {
	source Source
	// asked wakes the loop: a viewer wants a frame now.
	asked chan struct{}

	mu sync.Mutex // guards what follows
	// last is the newest frame, nil before the first; failed says why there is no newer one.
	last   *frame
	failed error
	// next is closed when there is a newer frame, or a newer error.
	next    chan struct{}
	viewers int
}

func newFeed(source Source) *feed {
	return &feed{source: source, asked: make(chan struct{}, 1), next: make(chan struct{})}
}

// run makes frames until the context ends.
func (f *feed) run(ctx context.Context) {
	refresh := time.NewTicker(mostInterval)
	defer refresh.Stop()
	var ready time.Time // the earliest time for the next frame
	for {
		var changed <-chan struct{}
		var old <-chan time.Time
		if f.watched() {
			changed, old = f.source.Changed(), refresh.C
		}
		select {
		case <-ctx.Done():
			return
		case <-f.asked:
		case <-changed:
		case <-old:
		}
		if wait := time.Until(ready); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
		start := time.Now()
		made, err := f.make(ctx)
		if ctx.Err() != nil {
			return
		}
		f.publish(made, err)
		took := time.Since(start)
		ready = start.Add(max(leastInterval, shareOfTime*took))
	}
}

func (f *feed) make(ctx context.Context) (*frame, error) {
	page, err := f.source.Page(ctx)
	if err != nil {
		return nil, err
	}
	parts, err := page.sections()
	if err != nil {
		return nil, fmt.Errorf("render the page: %w", err)
	}
	return &frame{title: page.Title(), report: page.Report != nil, parts: parts}, nil
}

func (f *feed) publish(made *frame, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed = err; err == nil {
		f.last = made
	}
	close(f.next)
	f.next = make(chan struct{})
}

func (f *feed) ask() {
	select {
	case f.asked <- struct{}{}:
	default:
	}
}

func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.viewers > 0
}

// join counts a viewer, unless there are too many already. leave must be called when it goes.
func (f *feed) join() (leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.viewers >= mostViewers {
		return nil, false
	}
	f.viewers++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.viewers--
	}, true
}

// current returns the newest frame, and a channel that is closed when there is a newer one.
func (f *feed) current() (*frame, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.next, f.failed
}

// frame makes a frame and returns it.
func (f *feed) frame(ctx context.Context) (*frame, error) {
	_, next, _ := f.current()
	f.ask()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-next:
	}
	last, _, err := f.current()
	if last != nil {
		return last, nil
	}
	return nil, err
}

// changes returns the parts of a frame that differ from those that a viewer has, and records that the viewer has them.
func (fr *frame) changes(have map[string]template.HTML) map[string]string {
	out := map[string]string{}
	for _, s := range fr.parts {
		if old, ok := have[s.ID]; !ok || old != s.HTML {
			out[s.ID] = string(s.HTML)
			have[s.ID] = s.HTML
		}
	}
	return out
}
