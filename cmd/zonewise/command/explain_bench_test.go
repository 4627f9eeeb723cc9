package command

import (
	"testing"

	"zonewise.dev/test/clitest"
)

// BenchmarkExplain explains a pod of a snapshot file with 5,000 nodes and 150,000 pods, the reading of the file
// included.
func BenchmarkExplain(b *testing.B) {
	cluster := clitest.Large(5000, 150_000)
	waits := &clitest.Cluster{Snapshot: cluster}
	waits.Pod("waits", "", clitest.Plain("1000", "1Gi"), map[string]string{"app": "waits"})
	file := savedAs(b, cluster)
	for b.Loop() {
		ok(b, "explain", "waits", "-n", clitest.Namespace, "--snapshot", file)
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/explain")
}
