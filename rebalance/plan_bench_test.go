package rebalance_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// BenchmarkPlan plans the moves of a cluster in which each workload of 300 pods has one or two too many in a zone, on
// the default number of copies. cpu-s is what the process used of all cores, without what it took to make the first
// copy, and peak-MB the most that was resident.
func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprintf("%dNodes%dWorkloads", nodes, nodes/10), func(b *testing.B) {
			c := drifted(nodes)
			s, err := sim.New(b.Context(), c.Objects(), sim.Options{Now: clitest.Now})
			require.NoError(b, err)
			defer s.Close()
			require.NoError(b, s.Run(b.Context()))
			began, _ := processUsage(b)
			for b.Loop() {
				p, err := rebalance.Make(b.Context(), s, rebalance.Options{})
				require.NoError(b, err)
				require.True(b, p.Complete)
				require.Zero(b, p.After.Excess)
				b.ReportMetric(float64(len(p.Moves)), "moves")
			}
			ended, peak := processUsage(b)
			b.ReportMetric((ended-began).Seconds()/float64(b.N), "cpu-s")
			b.ReportMetric(float64(peak)/1000, "peak-MB")
		})
	}
}

// BenchmarkFirst searches up to the first batch of such a cluster, as the controller does before pods are evicted.
// cpu-s is what that takes, with the copy.
func BenchmarkFirst(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprintf("%dNodes", nodes), func(b *testing.B) {
			c := drifted(nodes)
			began, _ := processUsage(b)
			for b.Loop() {
				s, err := sim.New(b.Context(), c.Objects(), sim.Options{Now: clitest.Now})
				require.NoError(b, err)
				p, err := rebalance.First(b.Context(), s, rebalance.Options{AtOnce: 1})
				require.NoError(b, err)
				require.Len(b, p.Moves, 1)
				s.Close()
			}
			ended, peak := processUsage(b)
			b.ReportMetric((ended-began).Seconds()/float64(b.N), "cpu-s")
			b.ReportMetric(float64(peak)/1000, "peak-MB")
		})
	}
}

// drifted is a cluster with a workload of 300 pods for each 10 nodes, which has one or two pods too many in a zone.
func drifted(nodes int) *clitest.Cluster {
	c := clitest.New()
	for i := range nodes {
		c.Node(fmt.Sprintf("node-%04d", i), string(rune('a'+i%3)), "32", "128Gi")
	}
	zones := nodes / 3
	for w := range nodes / 10 {
		app := fmt.Sprintf("app-%03d", w)
		add := c.Deployment(app, 300, "500m", "1Gi", clitest.Spread(app))
		for i := range 300 {
			zone := i % 3
			if i < 2 && zone != w%3 {
				zone = w % 3
			}
			add(fmt.Sprintf("node-%04d", (w*7+i/3)%zones*3+zone))
		}
	}
	return c
}

// processUsage is the time that the process has used of all cores, and the most memory that was resident, in
// kilobytes (on Linux).
func processUsage(b *testing.B) (cpu time.Duration, peak int64) {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), usage.Maxrss
}
