package survival

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOrdersOfTheCertificate: the planner finds room in other orders than those of the certificate, until this has found one in which a
// pod waits. Then the planner begins with the certificate's.
func TestOrdersOfTheCertificate(t *testing.T) {
	seeds := func(p *planner) (out []int64) {
		for pass := range maxPasses {
			for order := range p.orders {
				out = append(out, p.seed(pass, order))
			}
		}
		return out
	}
	own := seeds(&planner{orders: 3})
	seen := map[int64]bool{}
	for _, seed := range own {
		require.False(t, seen[seed], "twice: %d", seed)
		require.Less(t, seed, int64(judging))
		seen[seed] = true
	}
	broken := seeds(&planner{orders: 3, broken: true})
	for i := range int64(3) {
		require.Equal(t, judging+i, broken[i])
	}
	require.Equal(t, own[:len(own)-3], broken[3:])
}

// TestReplaysOf: fewer replays of large losses, unless the caller says how many.
func TestReplaysOf(t *testing.T) {
	for displaced, want := range map[int]int{0: 3, 1: 3, 20_000: 3, 20_001: 2, 30_000: 2, 30_001: 1, 60_001: 1} {
		require.Equal(t, want, (&Options{}).replaysOf(displaced), "%d pods", displaced)
		require.Equal(t, 5, (&Options{Replays: 5}).replaysOf(displaced), "%d pods", displaced)
	}
}
