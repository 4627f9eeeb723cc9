package command

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/program"
	"zonewise.dev/test/clitest"
)

// BenchmarkExplain explains a pod of a snapshot file with 5,000 nodes and 150,000 pods, the reading of the file
// included.
func BenchmarkExplain(b *testing.B) {
	cluster := clitest.Large(5000, 150_000)
	waits := &clitest.Cluster{Snapshot: cluster}
	waits.Pod("waits", "", clitest.Plain("1000", "1Gi"), map[string]string{"app": "waits"})
	file := filepath.Join(b.TempDir(), "cluster.json.gz")
	require.NoError(b, snapshot.Save(file, cluster))
	for b.Loop() {
		code, _, errs := zonewise(b.Context(), "explain", "waits", "-n", clitest.Namespace, "--snapshot", file)
		require.Equal(b, program.OK, code, errs)
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/explain")
}
