package board

import (
	"context"
	"html/template"
	"sync"
	"sync/atomic"
	"time"
)

// Source is where pages come from.
type Source interface {
	// Page returns the page as of now.
	Page() *Page
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

// feed makes frames while a page is open.
type feed struct {
	source  Source
	viewers atomic.Int32
	// wanted wakes the loop: a viewer wants a frame now.
	wanted chan struct{}

	mu sync.Mutex // guards what follows
	// last is the newest frame, nil before the first.
	last *frame
	// next is closed when there is a newer frame.
	next chan struct{}
}

func newFeed(source Source) *feed {
	return &feed{source: source, wanted: make(chan struct{}, 1), next: make(chan struct{})}
}

// run makes frames until the context ends.
func (f *feed) run(ctx context.Context) {
	for {
		var changed <-chan struct{}
		var old <-chan time.Time
		if f.viewers.Load() > 0 {
			changed, old = f.source.Changed(), time.After(mostInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.wanted:
		case <-changed:
		case <-old:
		}
		start := time.Now()
		f.makeFrame()
		took := time.Since(start)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(leastInterval, shareOfTime*took) - took):
		}
	}
}

func (f *feed) makeFrame() {
	made := f.source.Page().render()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = made
	close(f.next)
	f.next = make(chan struct{})
}

// wake has the loop make a frame now.
func (f *feed) wake() {
	select {
	case f.wanted <- struct{}{}:
	default:
	}
}

// currentFrame returns the newest frame, and a channel that is closed when there is a newer one.
func (f *feed) currentFrame() (*frame, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.next
}

// nextFrame makes a frame and returns it.
func (f *feed) nextFrame(ctx context.Context) (*frame, error) {
	_, next := f.currentFrame()
	f.wake()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-next:
	}
	last, _ := f.currentFrame()
	return last, nil
}

// changesFor returns the parts of a frame that differ from those that a viewer has, and records that the viewer has
// them.
func (fr *frame) changesFor(have map[string]template.HTML) map[string]template.HTML {
	out := map[string]template.HTML{}
	for _, s := range fr.Parts {
		if old, ok := have[s.ID]; !ok || old != s.HTML {
			out[s.ID], have[s.ID] = s.HTML, s.HTML
		}
	}
	return out
}
