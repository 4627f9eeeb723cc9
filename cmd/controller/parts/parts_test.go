package parts

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/cluster/snapshot"
)

// worker does steps of a second.
type worker struct {
	// next is what it answers after so many steps, beyond that never.
	next []time.Duration
	// doneAt is the step after which there is something to write, failsAt that which fails.
	doneAt, failsAt int
	steps           int
}

func (w *worker) Start(context.Context, *snapshot.Snapshot) {}

func (w *worker) Turn(context.Context, func() *snapshot.Snapshot) (time.Duration, error) {
	return 0, nil
}

func (w *worker) Close() {}

func (w *worker) Work(context.Context) (time.Duration, bool, error) {
	if w.steps == len(w.next) {
		return math.MaxInt64, false, nil
	}
	time.Sleep(time.Second)
	w.steps++
	if w.steps == w.failsAt {
		return 0, false, errBroken
	}
	return w.next[w.steps-1], w.steps == w.doneAt, nil
}

var errBroken = errors.New("the copy broke")

// idle is a part that is no worker.
type idle struct{ Part }

// TestWork: while no part has its turn, workers do a step as soon as they want to, at least one and until the cluster
// has changed or there is something to write. While a change settles they go on.
func TestWork(t *testing.T) {
	for _, tc := range []struct {
		name      string
		next      []time.Duration
		doneAt    int
		limit     time.Duration
		changedAt time.Duration // 0: never; below: before it begins
		settles   bool
		steps     int
		took      time.Duration
	}{
		{name: "no time", next: make([]time.Duration, 9), steps: 1, took: time.Second},
		{name: "steps in a row", next: make([]time.Duration, 9), limit: 5 * time.Second, steps: 5, took: 5 * time.Second},
		{
			name: "within the budget", next: []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second},
			limit: 6 * time.Second, steps: 2, took: 6 * time.Second,
		},
		{name: "nothing to do", limit: time.Hour, took: time.Hour},
		{name: "nothing to do, and a change", limit: math.MaxInt64, changedAt: time.Minute, took: time.Minute},
		{name: "a change before", next: make([]time.Duration, 9), limit: time.Hour, changedAt: -1},
		{name: "a change in a step", next: make([]time.Duration, 9), limit: time.Hour, changedAt: 2500 * time.Millisecond, steps: 3, took: 3 * time.Second},
		{name: "something to write", next: make([]time.Duration, 9), doneAt: 2, limit: time.Hour, steps: 2, took: 2 * time.Second},
		{name: "a change settles", next: make([]time.Duration, 9), doneAt: 2, settles: true, limit: 5 * time.Second, steps: 5, took: 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &worker{next: tc.next, doneAt: tc.doneAt}
				var changed chan struct{}
				if !tc.settles {
					changed = make(chan struct{}, 1)
				}
				if tc.changedAt < 0 {
					changed <- struct{}{}
				}
				if tc.changedAt > 0 {
					time.AfterFunc(tc.changedAt, func() { changed <- struct{}{} })
				}
				began := time.Now()
				done, err := work(t.Context(), []Part{idle{}, w}, changed, tc.limit)
				require.NoError(t, err)
				require.Equal(t, tc.doneAt > 0 && !tc.settles, done)
				require.Equal(t, tc.steps, w.steps)
				require.Equal(t, tc.took, time.Since(began))
			})
		})
	}
	t.Run("an error, and the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &worker{next: make([]time.Duration, 9), failsAt: 2}
			_, err := work(t.Context(), []Part{w}, nil, time.Hour)
			require.ErrorIs(t, err, errBroken)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = work(ctx, []Part{idle{}}, nil, time.Hour)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	})
}
