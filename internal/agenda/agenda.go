// Package agenda is a work queue of keys with times, on a clock of the caller's. Unlike a workqueue it knows for
// certain whether there is nothing to do, which a simulation on virtual time has to ask.
package agenda

import (
	"cmp"
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
	entries appointments[K]    // by their times
	due     appointments[K]    // those whose time has come, by their turns
	owner   func(key K) string // nil: all have the same turn
	turns   [2]turns           // of what is urgent, and of the rest
	last    uint64
	running map[K]struct{}
	tries   map[K]int
	stopped bool
	wake    chan struct{} // has a buffer of one: wakes a worker
}

// appointment is an entry of an agenda. It counts as long as the agenda has the same time for the key.
type appointment[K comparable] struct {
	key    K
	turn   uint64 // 0 until it is due
	at     time.Time
	number uint64
}

type appointments[K comparable] []appointment[K]

func (a appointments[K]) Len() int { return len(a) }
func (a appointments[K]) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(class(a[i].at), class(a[j].at)), cmp.Compare(a[i].turn, a[j].turn), a[i].at.Compare(a[j].at), cmp.Compare(a[i].number, a[j].number)) < 0
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

// NewFair is New, but the keys that are due are looked at in turns of their owners: however many keys of one owner are
// due, a key of another waits for one of each owner. Within an owner they are looked at in the order of their times.
// Those for which AddAt was given the zero time are urgent: they come before all others, in turns among themselves.
// This is start-time fair queueing (Goyal, Vin and Cheng, 1996) with looks of equal cost.
func NewFair[K comparable](c clock.WithTicker, owner func(key K) string) *Agenda[K] {
	a := New[K](c)
	a.owner, a.turns = owner, [2]turns{{next: map[string]uint64{}}, {next: map[string]uint64{}}}
	return a
}

// class is the class of an appointment, by its time: 0 if it is urgent, 1 otherwise.
func class(at time.Time) int {
	if at.IsZero() {
		return 0
	}
	return 1
}

// turns hands out the turns of a class. The least one that waits is taken first.
type turns struct {
	now  uint64            // the turn that was taken last
	next map[string]uint64 // the first turn that an owner has not been given, of those with keys that are due
}

// give returns the next turn of an owner: after those it has, and not before the present one. Turns begin with 1.
func (t *turns) give(owner string) uint64 {
	turn := max(t.next[owner], t.now, 1)
	t.next[owner] = turn + 1
	return turn
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
	a.promoteLocked()
	return len(a.running) == 0 && a.firstLocked(&a.due) == nil
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
	a.promoteLocked()
	first := a.firstLocked(&a.due)
	if first == nil {
		if first = a.firstLocked(&a.entries); first != nil {
			at = first.at
		}
		return key, at, false
	}
	key = first.key
	t := &a.turns[class(first.at)]
	t.now = max(t.now, first.turn)
	heap.Pop(&a.due)
	delete(a.at, key)
	a.running[key] = struct{}{}
	if a.firstLocked(&a.due) != nil || a.firstLocked(&a.entries) != nil {
		a.wakeOne() // for another worker
	}
	return key, time.Time{}, true
}

// promoteLocked gives turns to those whose time has come.
func (a *Agenda[K]) promoteLocked() {
	if len(a.due) == 0 {
		clear(a.turns[0].next)
		clear(a.turns[1].next)
	}
	now := a.clock.Now()
	for first := a.firstLocked(&a.entries); first != nil && !first.at.After(now); first = a.firstLocked(&a.entries) {
		entry := *first
		heap.Pop(&a.entries)
		if a.owner != nil {
			entry.turn = a.turns[class(entry.at)].give(a.owner(entry.key))
		}
		heap.Push(&a.due, entry)
	}
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
func (a *Agenda[K]) firstLocked(of *appointments[K]) *appointment[K] {
	for len(*of) > 0 {
		first := &(*of)[0]
		if at, known := a.at[first.key]; known && at.Equal(first.at) {
			if _, runs := a.running[first.key]; !runs {
				return first
			}
		}
		heap.Pop(of)
	}
	return nil
}

func (a *Agenda[K]) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	a.at, a.entries, a.due, a.running, a.tries = map[K]time.Time{}, nil, nil, map[K]struct{}{}, map[K]int{}
}
