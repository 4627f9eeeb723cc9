package permitgate

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// agenda has things that are to be looked at, each at its time, one after the other. Make one with newAgenda; its
// methods may be called from several goroutines.
type agenda[K comparable] struct {
	clock clock.WithTicker

	mu      sync.Mutex // guards everything below
	at      map[K]time.Time
	entries appointments[K]
	last    uint64
	busy    bool
	stopped bool
	wake    chan struct{} // has room for one: the first appointment may have changed
}

// appointment is an entry of an agenda. It counts as long as the agenda has the same time for the key.
type appointment[K comparable] struct {
	key    K
	at     time.Time
	number uint64
}

type appointments[K comparable] []appointment[K]

func (a appointments[K]) Len() int { return len(a) }
func (a appointments[K]) Less(i, j int) bool {
	if !a[i].at.Equal(a[j].at) {
		return a[i].at.Before(a[j].at)
	}
	return a[i].number < a[j].number
}
func (a appointments[K]) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *appointments[K]) Push(x any)   { *a = append(*a, x.(appointment[K])) } //nolint:forcetypeassert // the heap's own
func (a *appointments[K]) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func newAgenda[K comparable](c clock.WithTicker) *agenda[K] {
	return &agenda[K]{clock: c, at: map[K]time.Time{}, wake: make(chan struct{}, 1)}
}

// Add has the key looked at as soon as possible.
func (a *agenda[K]) Add(key K) { a.AddAt(key, a.clock.Now()) }

// AddAt has the key looked at at a time, or earlier if that was wanted before.
func (a *agenda[K]) AddAt(key K, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, known := a.at[key]; a.stopped || known && !at.Before(before) {
		return
	}
	a.at[key] = at
	a.last++
	heap.Push(&a.entries, appointment[K]{key: key, at: at, number: a.last})
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Idle reports whether there is nothing to do until something is added or the clock moves.
func (a *agenda[K]) Idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.firstLocked()
	return !a.busy && (first == nil || first.at.After(a.clock.Now()))
}

// Run looks at what is due until ctx ends.
func (a *agenda[K]) Run(ctx context.Context, look func(key K)) {
	defer a.stop()
	for ctx.Err() == nil {
		key, pause, due := a.next()
		if due {
			look(key)
			continue
		}
		var timer clock.Timer
		var c <-chan time.Time
		if pause > 0 {
			timer = a.clock.NewTimer(pause)
			c = timer.C()
		}
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-c:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// next takes what is due now, or says how long nothing will be; 0 when that is not known.
func (a *agenda[K]) next() (key K, pause time.Duration, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = false
	first := a.firstLocked()
	if first == nil {
		return key, 0, false
	}
	if pause := first.at.Sub(a.clock.Now()); pause > 0 {
		return key, pause, false
	}
	key = first.key
	heap.Pop(&a.entries)
	delete(a.at, key)
	a.busy = true
	return key, 0, true
}

// firstLocked returns the first appointment that counts; nil without one.
func (a *agenda[K]) firstLocked() *appointment[K] {
	for len(a.entries) > 0 {
		first := &a.entries[0]
		if at, known := a.at[first.key]; known && at.Equal(first.at) {
			return first
		}
		heap.Pop(&a.entries)
	}
	return nil
}

func (a *agenda[K]) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped, a.busy = true, false
	a.at, a.entries = map[K]time.Time{}, nil
}
