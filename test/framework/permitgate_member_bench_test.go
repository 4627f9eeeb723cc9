package framework

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkPod is what a pod costs from its creation to its bind, with kube-scheduler's default profile: plain
// pods, members of gangs, and members of gangs that rehearse the bind of one. An operation is 20 pods.
//
//	cpu-us/pod     CPU time of the whole process, the fake API server included
//	writes/pod     what is written to the API server for a pod: binds, patches, rehearsals
//	p50-ms, p99-ms from the creation of the last of 20 pods to the bind of the last
//
// Most of the CPU time and of the latency is the fake API server's, and goes with the writes: compare the
// lines with each other only. What the scheduler reaches against a real API server is in test/performance.
func BenchmarkPod(b *testing.B) {
	const size = 20
	for _, bc := range []struct{ name, args, gang string }{
		{"plain", `{}`, ""},
		{"member", `{"bindRehearsal": "Never"}`, "gang"},
		{"member-rehearsed", `{"bindRehearsal": "Auto"}`, "gang"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			cpus := make([]int, 20)
			for i := range cpus {
				cpus[i] = 1000
			}
			c := startGangCluster(b, bc.args, cpus...)
			var latencies []time.Duration
			pods, round := 0, 0
			c.client.ClearActions()
			cpu := cpuTime(b)
			for b.Loop() {
				round++
				gang := ""
				if bc.gang != "" {
					gang = fmt.Sprintf("%s-%d", bc.gang, round)
					c.groups.set(gang, size)
				}
				names := make([]string, size)
				for i := range names {
					names[i] = fmt.Sprintf("%s-%d-%d", bc.name, round, i)
					c.create(member(gang, names[i]))
				}
				created := time.Now()
				pods += size
				for c.bindCount() < pods {
					time.Sleep(200 * time.Microsecond)
				}
				latencies = append(latencies, time.Since(created))
				c.delete(names...)
			}
			used := cpuTime(b) - cpu
			slices.Sort(latencies)
			b.ReportMetric(float64(used.Microseconds())/float64(pods), "cpu-us/pod")
			b.ReportMetric(float64(c.writes()+c.stage.count(""))/float64(pods), "writes/pod")
			b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// cpuTime returns the CPU time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// bindCount returns how many pods have been bound.
func (c *cluster) bindCount() int {
	return len(c.server.Binds())
}

// writes returns how often the scheduler has written to the API server.
func (c *cluster) writes() (n int) {
	for _, action := range c.client.Actions() {
		if action.GetResource().Resource == "pods" && action.GetSubresource() != "" && slices.Contains([]string{"create", "patch", "update"}, action.GetVerb()) {
			n++
		}
	}
	return n
}
