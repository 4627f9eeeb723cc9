package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/chaos/judge"
	"zonewise.dev/test/internal/program"
)

// shortTable are the cells that are played each time; make views walks through all.
var shortTable = map[string]int{
	"release of a gang, write 1: leader killed":               3,
	"release of a gang, write 1: podgroups late":              1,
	"release of a native gang, write 1: leader killed":        5,
	"release of a native gang, write 1: podgroups late":       1,
	"preemption by a native gang, write 1: pods late":         1,
	"preemption by a gang, write 1: leader killed":            5,
	"preemption by a gang, write 1: pods twice":               1,
	"move of a reservation, write 1: nodes dropped":           1,
	"fail-over of a policy, write 1: zonespreadpolicies late": 1,
}

// TestTable plays some cells of the table of perturbed views on one control plane.
func TestTable(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	scheduler, err := program.Scheduler(root)
	require.NoError(t, err)
	dir := filepath.Join(root, "dist", "chaos", "table")
	require.NoError(t, os.RemoveAll(dir))
	table, err := NewTable(t.Context(), Options{Root: root, Program: scheduler, Dir: dir, Logf: func(string, ...any) {}})
	require.NoError(t, err)
	defer func() {
		require.NoError(t, table.Close())
		if !t.Failed() {
			require.NoError(t, os.RemoveAll(dir))
		}
	}()
	played := 0
	for _, row := range Rows() {
		n := shortTable[row.String()]
		if n == 0 {
			continue
		}
		played++
		cell := row.At(n)
		t.Run(row.String(), func(t *testing.T) {
			record, reached, err := table.Play(cell)
			require.NoError(t, err, "%s", cell)
			require.True(t, reached, "%s: the scheduler has not written so often", cell)
			verdicts := judge.All(record)
			var summary strings.Builder
			Summarize(&summary, record, verdicts)
			require.False(t, judge.Failed(verdicts), "%s, in %s\n%s", cell, dir, summary.String())
		})
	}
	require.Len(t, shortTable, played, "a cell is none of the table")
}
