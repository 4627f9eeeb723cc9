package agenda

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// clockSlack is how late a timer may fire.
const clockSlack = time.Millisecond

// timerAt returns a timer that fires at a time. A clock's own NewTimer takes a duration: if the clock is moved by hand
// between the computation of that duration and the call, the timer fires too late by that much. Its waiter then waits
// until the clock is moved again, which may never happen.
func timerAt(c clock.WithTicker, at time.Time) clock.Timer {
	for {
		now := c.Now()
		timer := c.NewTimer(at.Sub(now))
		if c.Since(now) <= clockSlack {
			return timer
		}
		timer.Stop()
	}
}

// Wait waits until a time (zero means for ever), until wake receives, or until ctx ends.
func Wait(ctx context.Context, c clock.WithTicker, until time.Time, wake <-chan struct{}) {
	var fires <-chan time.Time
	if !until.IsZero() {
		timer := timerAt(c, until)
		defer timer.Stop()
		if !c.Now().Before(until) {
			return // it is over, and no clock needs to fire a timer that is set so late
		}
		fires = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-wake:
	case <-fires:
	}
}
