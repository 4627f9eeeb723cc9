package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOwedTimePassesFromDeadlineToDeadline: what is deferred is not seen before it is paid, except by the queue what
// has ticked, and nothing is fired together with what is due later.
func TestOwedTimePassesFromDeadlineToDeadline(t *testing.T) {
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := newClock(began)
	queue := queueClock{c}
	first, second := c.NewTimer(time.Millisecond), c.NewTimer(2*time.Millisecond)
	c.countEvent()
	c.deferAdvance(2500 * time.Microsecond)
	require.Zero(t, c.Since(began))
	require.Equal(t, time.Microsecond, queue.Since(began), "the queue tells events apart")

	require.True(t, c.advanceDeferred())
	require.Len(t, first.C(), 1)
	require.Empty(t, second.C())
	require.Equal(t, time.Millisecond, c.Since(began))
	require.Equal(t, c.Now(), queue.Now(), "the queue is not ahead for good")

	require.True(t, c.advanceDeferred())
	require.Len(t, second.C(), 1)
	require.False(t, c.advanceDeferred())
	require.Equal(t, 2501*time.Microsecond, c.Since(began))
	require.False(t, c.advanceDeferred(), "nothing is deferred")
	require.Equal(t, 2501*time.Microsecond, c.Since(began))
}
