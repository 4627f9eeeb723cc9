package chaos

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/program"
)

// TestSoak: a cycle ends when all of its pods have been bound and are gone, and sees what the scheduler did.
func TestSoak(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	scheduler, err := program.Scheduler(root)
	require.NoError(t, err)
	cycles, err := Soak(t.Context(), SoakOptions{Duration: time.Second, Nodes: 60, Root: root, Program: scheduler, Dir: t.TempDir(), Logf: t.Logf})
	require.NoError(t, err)
	require.Len(t, cycles, 1)
	require.Len(t, cycles[0].Latencies, soakServices*soakReplicas)
	require.Greater(t, cycles[0].Requests, float64(soakServices*soakReplicas+soakGangs*soakMembers), "at least a bind for each pod")
	require.Positive(t, cycles[0].Goroutines)
	require.Positive(t, cycles[0].Memory)
	require.Positive(t, cycles[0].Heap)
}

// TestFigures: what grows from the first third of a soak to the last is named.
func TestFigures(t *testing.T) {
	cycle := func(p99 time.Duration, memory float64) Cycle {
		return Cycle{Latencies: []time.Duration{p99 / 2, p99}, Requests: 1000, Goroutines: 500, Memory: memory * 1e6, Heap: 50e6}
	}
	cycles := []Cycle{
		cycle(100*time.Millisecond, 200), cycle(100*time.Millisecond, 200),
		cycle(time.Second, 1000), cycle(time.Second, 1000),
		cycle(105*time.Millisecond, 200), cycle(105*time.Millisecond, 218),
	}
	var out strings.Builder
	require.NoError(t, SummarizeSoak(&out, cycles))
	require.Contains(t, out.String(), "resident memory            200 MB       209 MB      1.04")
	require.Contains(t, out.String(), "p99 from creation to bind  100 ms       105 ms      1.05")
	require.Contains(t, out.String(), "100 to 100 ms, median 100 in the first third, 105 to 105 ms, median 105 in the last")

	cycles[5].Memory = 250e6
	require.EqualError(t, SummarizeSoak(&out, cycles), "resident memory: 1.12 times as much in the last third as in the first")
	require.EqualError(t, SummarizeSoak(&out, cycles[:2]), "2 cycles are too few to compare")
}
