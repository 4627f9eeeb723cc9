package parts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMeter: a round that used 10 s of a core may be followed by another one after 50 s, at a fifth of a core.
func TestMeter(t *testing.T) {
	used := 3 * time.Second
	m := Meter{Fraction: 0.2, CPU: func() time.Duration { return used }}
	start := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	m.Begin(start)
	require.Equal(t, start, m.Next())
	used += 10 * time.Second
	require.Equal(t, start.Add(50*time.Second), m.Next())
	used += time.Second // what is used between rounds counts as well
	require.Equal(t, start.Add(55*time.Second), m.Next())
	m.Begin(start.Add(time.Minute))
	require.Equal(t, start.Add(time.Minute), m.Next())
	used += time.Second
	m.End()
	used += time.Hour // is left out
	require.Equal(t, start.Add(65*time.Second), m.Next())

	require.Equal(t, time.Second, m.TryBegin(start.Add(64*time.Second)))
	require.Equal(t, start.Add(65*time.Second), m.Next(), "it has not begun")
	require.Zero(t, m.TryBegin(start.Add(65*time.Second)))
	used += time.Second
	require.Equal(t, start.Add(70*time.Second), m.Next())
}

func TestCPUTime(t *testing.T) {
	began := CPUTime()
	require.Positive(t, began)
	turns := 0
	for CPUTime() == began {
		turns++
	}
	require.Greater(t, CPUTime(), began, "after %d turns", turns)
}
