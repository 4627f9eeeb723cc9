package chaos

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/program"
)

// TestFlood: what the others see is measured before, while and after a tenant makes its objects.
func TestFlood(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	scheduler, err := program.Scheduler(root)
	require.NoError(t, err)
	phases, err := Flood(t.Context(), FloodOptions{Groups: 20, Policies: 10, Cycles: 1, Services: 2, Root: root, Program: scheduler, Dir: t.TempDir(), Logf: t.Logf})
	require.NoError(t, err)
	require.Len(t, phases, 5)
	for _, p := range phases {
		require.NotEmpty(t, p.Cycles, p.Name)
		for _, c := range p.Cycles {
			require.Len(t, c.Latencies, 2*soakReplicas, p.Name)
		}
		require.Less(t, p.GroupStatus, statusLimit, p.Name)
		require.Less(t, p.PolicyStatus, statusLimit, p.Name)
	}
}

// TestSummarizeFlood: what makes others wait is named, unless it is still being made.
func TestSummarizeFlood(t *testing.T) {
	phase := func(name string, stands bool, p99 time.Duration, status time.Duration) Phase {
		return Phase{Name: name, Stands: stands, GroupStatus: status, Cycles: []Cycle{{Latencies: []time.Duration{p99 / 2, p99}, Memory: 200e6}}}
	}
	phases := []Phase{
		phase("before", true, 100*time.Millisecond, time.Second), phase("while", false, time.Second, time.Second),
		phase("with", true, 120*time.Millisecond, statusLimit),
	}
	var out strings.Builder
	require.NoError(t, SummarizeFlood(&out, phases))
	require.Regexp(t, `with +1 +120 ms +120 ms +120 to 120 ms, median 120 +1\.20 +200 MB +not within 30s +0\.0s\n`, out.String())

	phases[2] = phase("with", true, 130*time.Millisecond, time.Second)
	require.EqualError(t, SummarizeFlood(&out, phases), "with: others wait 1.30 times as long")
	require.Error(t, SummarizeFlood(&out, nil))
}
