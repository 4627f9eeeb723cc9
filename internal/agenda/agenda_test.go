package agenda_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/internal/agenda"
)

func TestEachAtItsTime(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	clock := clocktesting.NewFakeClock(start)
	a := agenda.New[string](clock)
	looked := make(chan string, 10)
	require.True(t, a.Idle())
	a.AddAt("late", start.Add(time.Hour))
	a.AddAt("late", start.Add(2*time.Hour)) // no later than was asked for
	require.True(t, a.Idle(), "until the clock moves")
	a.Add("now")
	require.False(t, a.Idle())

	go a.Run(t.Context(), 1, func(key string) { looked <- key })
	require.Equal(t, "now", <-looked)
	require.Eventually(t, func() bool { return a.Idle() && clock.HasWaiters() }, time.Minute, time.Millisecond)
	clock.Step(time.Hour)
	require.Equal(t, "late", <-looked)
	require.Eventually(t, a.Idle, time.Minute, time.Millisecond)
	require.Empty(t, looked)

	// An earlier time counts.
	a.AddAt("again", clock.Now().Add(time.Hour))
	a.Add("again")
	require.Equal(t, "again", <-looked)
	clock.Step(2 * time.Hour)
	require.Eventually(t, a.Idle, time.Minute, time.Millisecond)
	require.Empty(t, looked)
}

func TestNotIdleDuringALook(t *testing.T) {
	a := agenda.New[string](clocktesting.NewFakeClock(time.Unix(1_000_000, 0)))
	begun, goOn := make(chan struct{}), make(chan struct{})
	go a.Run(t.Context(), 1, func(string) { begun <- struct{}{}; <-goOn })
	a.Add("key")
	<-begun
	require.False(t, a.Idle())
	goOn <- struct{}{}
	require.Eventually(t, a.Idle, time.Minute, time.Millisecond)
}

func TestRetriesTakeLongerEachTime(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	a := agenda.New[string](clock)
	looked := make(chan time.Time, 10)
	go a.Run(t.Context(), 1, func(key string) {
		looked <- clock.Now()
		a.Retry(key, time.Second, 4*time.Second)
	})
	a.Add("key")
	last := <-looked
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		require.Eventually(t, func() bool { return a.Idle() && clock.HasWaiters() }, time.Minute, time.Millisecond)
		clock.Step(want - time.Millisecond)
		require.True(t, a.Idle())
		clock.Step(time.Millisecond)
		at := <-looked
		require.Equal(t, want, at.Sub(last))
		last = at
	}
}

// TestWorkers: several keys are looked at at the same time, one key never is, and nothing that is added is lost.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, adds, workers = 20, 200, 4
		a := agenda.New[int](clocktesting.NewFakeClock(time.Unix(1_000_000, 0)))
		var mu sync.Mutex // guards everything below
		running, added, seen, most := map[int]bool{}, map[int]int{}, map[int]int{}, 0
		go a.Run(t.Context(), workers, func(key int) {
			mu.Lock()
			if running[key] {
				t.Error("one key is looked at twice at a time")
			}
			running[key] = true
			most = max(most, len(running))
			seen[key] = added[key]
			mu.Unlock()
			time.Sleep(time.Second) // of the bubble: looks overlap
			mu.Lock()
			delete(running, key)
			mu.Unlock()
		})
		for i := range adds {
			mu.Lock()
			added[i%keys]++
			mu.Unlock()
			a.Add(i % keys)
		}
		for !a.Idle() {
			time.Sleep(time.Second)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, added, seen)
		require.Equal(t, workers, most)
	})
}

// steppedClock is a clock that is moved between each computation of a duration and the timer for it, once.
type steppedClock struct {
	*clocktesting.FakeClock
	once sync.Once
}

func (c *steppedClock) NewTimer(d time.Duration) clock.Timer {
	c.once.Do(func() { c.Step(time.Second) })
	return c.FakeClock.NewTimer(d)
}

// TestWaitOnAClockThatIsMovedMeanwhile: the timer is set for the time, however the clock moves while it is set.
func TestWaitOnAClockThatIsMovedMeanwhile(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	c := &steppedClock{FakeClock: clocktesting.NewFakeClock(start)}
	over := make(chan struct{})
	go func() { agenda.Wait(t.Context(), c, start.Add(2*time.Second), nil); close(over) }()
	require.Eventually(t, func() bool { return c.Since(start) == time.Second && c.HasWaiters() }, time.Minute, time.Millisecond)
	c.Step(time.Second)
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("it still waits at the time")
	}
}

type key struct {
	owner string
	n     int
}

// looks has one worker look at n keys and returns their order. While the sixth is looked at, another one comes late.
func looks(t *testing.T, a *agenda.Agenda[key], n int, late func()) (order []key) {
	t.Helper()
	looked := make(chan key, 2*n)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go a.Run(ctx, 1, func(k key) {
		if looked <- k; len(looked) == 6 {
			late()
		}
	})
	require.Eventually(t, a.Idle, time.Minute, time.Millisecond)
	for range n {
		order = append(order, <-looked)
	}
	require.Empty(t, looked)
	return order
}

// TestOwnersTakeTurns: what one owner has to do, however much, does not hold up the others.
func TestOwnersTakeTurns(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	a := agenda.NewFair(clock, func(k key) string { return k.owner })
	for i := range 1000 {
		a.Add(key{"flood", i})
	}
	require.False(t, a.Idle()) // has given turns to all of them
	clock.Step(time.Second)
	a.Add(key{"one", 0})
	a.Add(key{"few", 0})
	a.Add(key{"few", 1})
	a.AddAt(key{"flood", 999}, time.Time{})

	order := looks(t, a, 1004, func() { a.Add(key{"late", 0}) })
	require.Equal(t, key{"flood", 999}, order[0], "what is urgent comes first")
	require.ElementsMatch(t, []key{{"flood", 0}, {"one", 0}, {"few", 0}}, order[1:4])
	require.ElementsMatch(t, []key{{"flood", 1}, {"few", 1}}, order[4:6])
	require.Contains(t, order[6:8], key{"late", 0})
	for i, k := range slices.DeleteFunc(order[1:], func(k key) bool { return k.owner != "flood" }) {
		require.Equal(t, key{"flood", i}, k, "an owner's own keys stay in their order")
	}
}

// TestOwnersTakeTurnsWithWhatIsUrgent: nor does it if all of it is urgent, and what is urgent still comes before the
// rest.
func TestOwnersTakeTurnsWithWhatIsUrgent(t *testing.T) {
	a := agenda.NewFair(clocktesting.NewFakeClock(time.Unix(1_000_000, 0)), func(k key) string { return k.owner })
	a.Add(key{"calm", 0})
	for i := range 1000 {
		a.AddAt(key{"flood", i}, time.Time{})
	}
	require.False(t, a.Idle()) // has given turns to all of them
	a.AddAt(key{"other", 0}, time.Time{})

	order := looks(t, a, 1003, func() { a.AddAt(key{"late", 0}, time.Time{}) })
	require.ElementsMatch(t, []key{{"flood", 0}, {"other", 0}}, order[:2])
	require.Contains(t, order[6:8], key{"late", 0})
	require.Equal(t, key{"calm", 0}, order[1002])
}
