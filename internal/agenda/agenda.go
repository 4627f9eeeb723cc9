// Package agenda is a work queue of keys with times, on a clock of the caller's. Unlike a workqueue it knows for certain
// whether there is nothing to do, which a simulation on virtual time has to ask.
package agenda

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Agenda is an agenda of keys. Make one with New; its methods may be called from several goroutines.
type Agenda[K comparable] struct {
	clock clock.WithTicker

	mu      sync.Mutex // guards everything below
	at      map[K]time.Time
	entries appointments[K]
	last    uint64
	running map[K]struct{}
	tries   map[K]int
	stopped bool
	wake    chan struct{} // has a buffer of one: wakes a worker
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

// New returns an empty agenda on a clock.
func New[K comparable](c clock.WithTicker) *Agenda[K] {
	return &Agenda[K]{
		clock: c, at: map[K]time.Time{}, running: map[K]struct{}{}, tries: map[K]int{}, wake: make(chan struct{}, 1),
	}
}

// Add has the key looked at as soon as possible.
func (a *Agenda[K]) Add(key K) { a.AddAt(key, a.clock.Now()) }

// AddAt has the key looked at at a time, or earlier if an earlier call asked for that.
func (a *Agenda[K]) AddAt(key K, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addLocked(key, at)
}

func (a *Agenda[K]) addLocked(key K, at time.Time) {
	if before, known := a.at[key]; a.stopped || known && !at.Before(before) {
		return
	}
	a.at[key] = at
	if _, runs := a.running[key]; runs {
		return // it is entered when the look that runs has ended
	}
	a.enterLocked(key, at)
}

func (a *Agenda[K]) enterLocked(key K, at time.Time) {
	a.last++
	heap.Push(&a.entries, appointment[K]{key: key, at: at, number: a.last})
	a.wakeOne()
}

func (a *Agenda[K]) wakeOne() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Retry has the key looked at again after first, then after twice as long with each further Retry, up to limit, until
// Forget. It returns the number of retries, this one included.
func (a *Agenda[K]) Retry(key K, first, limit time.Duration) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	pause := limit
	if tries := a.tries[key]; tries < 30 {
		pause = min(limit, first<<tries)
	}
	a.tries[key]++
	a.addLocked(key, a.clock.Now().Add(pause))
	return a.tries[key]
}

// Forget ends a series of retries.
func (a *Agenda[K]) Forget(key K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tries, key)
}

// Idle reports whether there is nothing to do until something is added or the clock moves.
func (a *Agenda[K]) Idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.firstLocked()
	return len(a.running) == 0 && (first == nil || first.at.After(a.clock.Now()))
}

// Run looks at what is due, with a number of workers, until ctx ends. A key is looked at by one of them at a time.
func (a *Agenda[K]) Run(ctx context.Context, workers int, look func(key K)) {
	defer a.stop()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { a.work(ctx, look) })
	}
	group.Wait()
}

func (a *Agenda[K]) work(ctx context.Context, look func(key K)) {
	for ctx.Err() == nil {
		key, next, due := a.next()
		if due {
			look(key)
			a.done(key)
			continue
		}
		Wait(ctx, a.clock, next, a.wake)
	}
}

// next takes a key that is due now, or returns when the next one is due; zero if there is none.
func (a *Agenda[K]) next() (key K, at time.Time, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.firstLocked()
	if first == nil {
		return key, time.Time{}, false
	}
	if first.at.After(a.clock.Now()) {
		return key, first.at, false
	}
	key = first.key
	heap.Pop(&a.entries)
	delete(a.at, key)
	a.running[key] = struct{}{}
	if a.firstLocked() != nil {
		a.wakeOne() // for another worker
	}
	return key, time.Time{}, true
}

func (a *Agenda[K]) done(key K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, key)
	if at, again := a.at[key]; again {
		a.enterLocked(key, at)
	}
}

// firstLocked returns the first appointment that counts; nil without one.
func (a *Agenda[K]) firstLocked() *appointment[K] {
	for len(a.entries) > 0 {
		first := &a.entries[0]
		if at, known := a.at[first.key]; known && at.Equal(first.at) {
			if _, runs := a.running[first.key]; !runs {
				return first
			}
		}
		heap.Pop(&a.entries)
	}
	return nil
}

func (a *Agenda[K]) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	a.at, a.entries, a.running, a.tries = map[K]time.Time{}, nil, map[K]struct{}{}, map[K]int{}
}
