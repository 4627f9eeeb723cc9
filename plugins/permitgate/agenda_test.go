package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestAgenda(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	clock := clocktesting.NewFakeClock(start)
	a := newAgenda[string](clock)
	looked := make(chan string, 10)
	require.True(t, a.Idle())
	a.AddAt("late", start.Add(time.Hour))
	a.AddAt("late", start.Add(2*time.Hour)) // no later than was asked for
	require.True(t, a.Idle(), "until the clock moves")
	a.Add("now")
	require.False(t, a.Idle())

	go a.Run(t.Context(), func(key string) { looked <- key })
	require.Equal(t, "now", <-looked)
	require.Eventually(t, func() bool { return a.Idle() && clock.HasWaiters() }, 10*time.Second, time.Millisecond)
	clock.Step(time.Hour)
	require.Equal(t, "late", <-looked)
	require.Eventually(t, a.Idle, 10*time.Second, time.Millisecond)
	require.Empty(t, looked)

	// An earlier time counts.
	a.AddAt("again", clock.Now().Add(time.Hour))
	a.Add("again")
	require.Equal(t, "again", <-looked)
	clock.Step(2 * time.Hour)
	require.Eventually(t, a.Idle, 10*time.Second, time.Millisecond)
	require.Empty(t, looked)
}

func TestAgendaIsNotIdleWhileItLooks(t *testing.T) {
	a := newAgenda[string](clocktesting.NewFakeClock(time.Unix(1_000_000, 0)))
	begun, goOn := make(chan struct{}), make(chan struct{})
	go a.Run(t.Context(), func(string) { begun <- struct{}{}; <-goOn })
	a.Add("key")
	<-begun
	require.False(t, a.Idle())
	goOn <- struct{}{}
	require.Eventually(t, a.Idle, 10*time.Second, time.Millisecond)
}
