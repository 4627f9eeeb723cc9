package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSearchThatFailedIsNotRepeated until as many more members fit as it lacked; by time alone after a minute, and after fifty
// times as long as it took, for each gang that searches in vain, in any case.
func TestSearchThatFailedIsNotRepeated(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	none := searched{}
	require.True(t, none.allows(0, 1, start), "the first")
	require.Equal(t, 7, none.missing(7, 0))

	s := searched{at: start, took: 100 * time.Millisecond, short: 3, fitted: 2}
	require.Equal(t, 3, s.missing(7, 2))
	require.Equal(t, 1, s.missing(7, 4))
	require.False(t, s.allows(2, 1, after(59*time.Second)))
	require.Equal(t, after(time.Minute), s.again)
	require.True(t, s.allows(2, 1, after(time.Minute)))
	require.False(t, s.allows(4, 1, after(6*time.Second)), "one is lacking")
	require.False(t, s.allows(5, 1, after(4*time.Second)), "it would take too much of the time")
	require.Equal(t, after(5*time.Second), s.again)
	require.True(t, s.allows(5, 1, after(5*time.Second)))
	require.Zero(t, s.again)

	require.False(t, s.allows(5, 30, after(149*time.Second)), "thirty gangs share the time")
	require.True(t, s.allows(5, 30, after(150*time.Second)))
	require.False(t, s.allows(5, 1000, after(599*time.Second)))
	require.True(t, s.allows(5, 1000, after(10*time.Minute)), "a thousand do not wait for hours")

	unknown := searched{at: start, took: 100 * time.Millisecond}
	require.Equal(t, 1, unknown.missing(7, 2))
	require.False(t, unknown.allows(2, 1, after(4*time.Second)))
	require.True(t, unknown.allows(2, 1, after(5*time.Second)))
}
