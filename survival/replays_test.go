package survival

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReplaysOf: fewer replays of large losses, and more of small ones where a certificate judges, unless the caller
// says how many.
func TestReplaysOf(t *testing.T) {
	for displaced, want := range map[int][2]int{
		0: {3, 12}, 1: {3, 12}, 200: {3, 12}, 201: {3, 11}, 600: {3, 4}, 800: {3, 3}, 20_000: {3, 3}, 20_001: {2, 2},
		30_000: {2, 2}, 30_001: {1, 1}, 60_001: {1, 1},
	} {
		o, five := Options{}, Options{Replays: 5}
		require.Equal(t, want, [2]int{o.replaysOf(displaced, DefaultReplays), o.replaysOf(displaced, mostReplays)}, "%d pods", displaced)
		require.Equal(t, [2]int{5, 5}, [2]int{five.replaysOf(displaced, DefaultReplays), five.replaysOf(displaced, mostReplays)}, "%d pods", displaced)
	}
}
