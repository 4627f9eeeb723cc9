package sim

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// virtualClock is the clock that scheduler and plugins share: it stands still until the Sim moves it. What it fires, it
// fires in the order of the deadlines, and of equal deadlines in the order in which they were set.
type virtualClock struct {
	mu       sync.Mutex // guards everything below
	now      time.Time
	serial   int
	waiting  []*alarm      // in the order in which they fire
	deferred time.Duration // what Sim.settle has still to pass
	ticked   time.Duration // the part of it that the scheduling queue has seen already

	// running is how many functions of AfterFunc have been started and have not returned.
	running atomic.Int32
}

var _ clock.WithTickerAndDelayedExecution = &virtualClock{}

// alarm is a timer or a ticker.
type alarm struct {
	clock  *virtualClock
	fire   func(at time.Time)
	c      chan time.Time
	period time.Duration // of a ticker

	// Guarded by clock.mu:
	at     time.Time
	serial int // 0 when it is not set
}

func newClock(now time.Time) *virtualClock { return &virtualClock{now: now} }

// Now implements clock.PassiveClock.
func (c *virtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Since implements clock.PassiveClock.
func (c *virtualClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// durationUntil returns how long it is to a time.
func (c *virtualClock) durationUntil(t time.Time) time.Duration { return t.Sub(c.Now()) }

// After implements clock.Clock.
func (c *virtualClock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).C() }

// Tick implements clock.Clock.
func (c *virtualClock) Tick(d time.Duration) <-chan time.Time { return c.NewTicker(d).C() }

// Sleep implements clock.Clock.
func (c *virtualClock) Sleep(d time.Duration) { <-c.After(d) }

// NewTimer implements clock.Clock.
func (c *virtualClock) NewTimer(d time.Duration) clock.Timer { return c.newAlarm(d, 0) }

// NewTicker implements clock.WithTicker.
func (c *virtualClock) NewTicker(d time.Duration) clock.Ticker { return ticker{c.newAlarm(d, d)} }

// AfterFunc implements clock.WithDelayedExecution.
func (c *virtualClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	a := &alarm{clock: c, fire: func(time.Time) {
		c.running.Add(1)
		go func() {
			defer c.running.Add(-1)
			f()
		}()
	}}
	a.Reset(d)
	return a
}

func (c *virtualClock) newAlarm(d, period time.Duration) *alarm {
	ch := make(chan time.Time, 1)
	a := &alarm{clock: c, c: ch, period: period, fire: func(at time.Time) {
		select {
		case ch <- at:
		default: // the last one has not been taken yet
		}
	}}
	a.Reset(d)
	return a
}

// C implements clock.Timer.
func (a *alarm) C() <-chan time.Time { return a.c }

// Stop implements clock.Timer.
func (a *alarm) Stop() bool {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	return a.stopLocked()
}

func (a *alarm) stopLocked() (wasSet bool) {
	if a.serial == 0 {
		return false
	}
	i, _ := slices.BinarySearchFunc(a.clock.waiting, a, (*alarm).compare)
	a.clock.waiting = slices.Delete(a.clock.waiting, i, i+1)
	a.serial = 0
	return true
}

// Reset implements clock.Timer. A deadline that has passed already fires at once.
func (a *alarm) Reset(d time.Duration) bool {
	c := a.clock
	c.mu.Lock()
	wasSet := a.stopLocked()
	now := c.now
	if d > 0 {
		a.setLocked(now.Add(d))
	}
	c.mu.Unlock()
	if d <= 0 {
		a.fire(now)
	}
	return wasSet
}

func (a *alarm) setLocked(at time.Time) {
	c := a.clock
	c.serial++
	a.at, a.serial = at, c.serial
	i, _ := slices.BinarySearchFunc(c.waiting, a, (*alarm).compare)
	c.waiting = slices.Insert(c.waiting, i, a)
}

// compare orders alarms by their deadlines, and equal deadlines in the order in which they were set.
func (a *alarm) compare(b *alarm) int {
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.serial, b.serial))
}

// ticker is an alarm whose Stop returns nothing.
type ticker struct{ *alarm }

// Stop implements clock.Ticker.
func (t ticker) Stop() { t.alarm.Stop() }

// nextDeadline returns the next deadline.
func (c *virtualClock) nextDeadline() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return time.Time{}, false
	}
	return c.waiting[0].at, true
}

// deferAdvance has d pass at the next rest: a worker that is at work meanwhile does not see the time move.
func (c *virtualClock) deferAdvance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deferred += d
}

// deferAtLeast has d pass at the next rest if less is to.
func (c *virtualClock) deferAtLeast(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deferred = max(c.deferred, d)
}

// countEvent defers the time by which the queue's clock tells two events apart.
func (c *virtualClock) countEvent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deferred += time.Microsecond
	c.ticked += time.Microsecond
}

// advanceDeferred passes what is deferred, up to the next deadline at most. It returns whether it reached one, so that
// something may be at work.
func (c *virtualClock) advanceDeferred() (fired bool) {
	c.mu.Lock()
	end := c.now.Add(c.deferred)
	if len(c.waiting) > 0 && !c.waiting[0].at.After(end) {
		end, fired = c.waiting[0].at, true
	}
	passed := max(0, end.Sub(c.now))
	c.deferred -= passed
	c.ticked = max(0, c.ticked-passed)
	c.mu.Unlock()
	c.advanceTo(end)
	return fired
}

// queueClock is the clock of the scheduling queue, which tells pods apart by their times. It is ahead of the virtual
// clock by what events have taken since the last rest.
type queueClock struct{ *virtualClock }

// Now implements clock.PassiveClock.
func (c queueClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.Add(c.ticked)
}

// Since implements clock.PassiveClock.
func (c queueClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// advanceTo moves the time on to t, never back, and fires what is due by then.
func (c *virtualClock) advanceTo(t time.Time) {
	for {
		c.mu.Lock()
		if len(c.waiting) == 0 || c.waiting[0].at.After(t) {
			if t.After(c.now) {
				c.now = t
			}
			c.mu.Unlock()
			return
		}
		a := c.waiting[0]
		a.stopLocked()
		at := a.at
		if at.After(c.now) {
			c.now = at
		}
		if a.period > 0 {
			a.setLocked(at.Add(a.period))
		}
		c.mu.Unlock()
		a.fire(at)
	}
}
