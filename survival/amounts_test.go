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
			for order := range p.options.Replays {
				out = append(out, p.seed(pass, order))
			}
		}
		return out
	}
	options := &Options{Replays: DefaultReplays}
	own := seeds(&planner{options: options})
	seen := map[int64]bool{}
	for _, seed := range own {
		require.False(t, seen[seed], "twice: %d", seed)
		require.Less(t, seed, int64(judging))
		seen[seed] = true
	}
	broken := seeds(&planner{options: options, broken: true})
	for i := range int64(DefaultReplays) {
		require.Equal(t, judging+i, broken[i])
	}
	require.Equal(t, own[:len(own)-DefaultReplays], broken[DefaultReplays:])
}
