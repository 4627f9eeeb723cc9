package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The smallest workloads of a case for each plugin, in turns, with the driver and all that it starts: from an API
// server's start to the lines that benchstat reads.
func TestSmallestWorkloads(t *testing.T) {
	dir, out := t.TempDir(), &bytes.Buffer{}
	args := []string{"-turns=2", "-workload=5Nodes", "-cases=SpreadPodsBefore,SchedulingBesideHolds,Gangs", "-dir=" + dir}
	err := run(t.Context(), args, out, func(context.Context, string) (string, error) { return os.Executable() })
	require.NoError(t, err, out)
	results, err := os.ReadFile(filepath.Join(dir, resultsFile))
	require.NoError(t, err)
	for series, figures := range map[string]string{
		"set=SpreadPodsBefore_5Nodes/series=SpreadPodsBefore,in-tree":                `[1-9]\S* pods/s [1-9]\S* cpu-ms/pod`,
		"set=SpreadPodsBefore_5Nodes/series=SpreadPodsBefore,zonespread":             `pods/s`,
		"set=SchedulingBesideHolds_5Nodes/series=SchedulingBesideHolds,in-tree":      `pods/s`,
		"set=SchedulingBesideHolds_5Nodes/series=SchedulingBesideHolds,reservecache": `pods/s`,
		"set=Gangs_5Nodes/series=SameWithoutGangs,in-tree":                           `whole-p50-s \S+ whole-p99-s .*1 writes-pods/binding/pod`,
		"set=Gangs_5Nodes/series=NativeGangs,in-tree":                                `whole-p50-s .*1 writes-pods/binding/pod`,
		"set=Gangs_5Nodes/series=Gangs,permitgate":                                   `1 writes-pods/binding/pod 0\.\d+ writes-pods/binding-dry-run/pod`,
		"set=Gangs_5Nodes/series=Gangs,permitgate-never":                             `writes-podgroups/status/pod 1 writes-pods/binding/pod`,
	} {
		lines := regexp.MustCompile(`(?m)^BenchmarkE2E/`+regexp.QuoteMeta(series)+` 1 .*$`).FindAllString(string(results), -1)
		require.Len(t, lines, 2, "turns of %s in\n%s", series, results)
		for _, line := range lines {
			require.Regexp(t, figures, line)
			require.True(t, !strings.Contains(series, "never") || !strings.Contains(line, "dry-run"), line)
		}
	}
}

// Each of several is everywhere in the order, and each pair is as often one way round as the other.
func TestTurnOrder(t *testing.T) {
	first, before := map[int]int{}, map[[2]int]int{}
	for turn := range 6 {
		order := turnOrder(3, turn)
		first[order[0]]++
		for i := range order {
			for _, later := range order[i+1:] {
				before[[2]int{order[i], later}]++
			}
		}
	}
	require.Equal(t, map[int]int{0: 2, 1: 2, 2: 2}, first)
	for pair, n := range before {
		require.Equal(t, 3, n, "%v", pair)
	}
}
