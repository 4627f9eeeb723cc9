package survival

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReplaysOf: fewer replays of large losses, and more of small ones, unless the caller says how many.
func TestReplaysOf(t *testing.T) {
	for displaced, want := range map[int]int{
		0: 6, 1: 6, 200: 6, 201: 5, 400: 3, 600: 2, 15_000: 2, 15_001: 1, 30_001: 1,
	} {
		o, five := Options{}, Options{Replays: 5}
		require.Equal(t, want, o.replaysOf(displaced), "%d pods", displaced)
		require.Equal(t, 5, five.replaysOf(displaced), "%d pods", displaced)
	}
}
