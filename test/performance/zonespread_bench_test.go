package performance

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	parity "zonewise.dev/test/parity/zonespread"
)

// podsPerApp is the size of the deployments of these clusters.
const podsPerApp = 100

// oursPerInTree is how many cycles of ZoneSpread are timed in a turn, which is one cycle of the much slower in-tree
// plugin.
const oursPerInTree = 25

// spreadCycles are the scheduling cycles of a cluster.
type spreadCycles struct {
	cluster *spreadCluster
	pod     func(i int) *v1.Pod // of a cycle
	cycle   int
}

// next times a plugin in the next cycle, after which one pod is assumed, one confirmed and one deleted.
func (s *spreadCycles) next(b *testing.B, plugin parity.Plugin, out *spreadSamples) {
	b.Helper()
	s.cycle++
	p := s.pod(s.cycle)
	took, _ := s.cluster.cost(b, plugin, p, s.cluster.candidates(b, s.cycle*97))
	*out = append(*out, took.sum())
	s.cluster.turn(b, p, (s.cycle*7919)%len(s.cluster.nodes), true)
}

// compareSpreadCost times both plugins in turns on the same snapshots, and reports the medians and their ratio.
func compareSpreadCost(b *testing.B, c *spreadCluster, pod func(i int) *v1.Pod) {
	b.Helper()
	cycles := spreadCycles{cluster: c, pod: pod}
	var inTree, ours spreadSamples
	cycles.next(b, c.pair.Ours, new(spreadSamples)) // the first cycle reads the whole cluster
	for b.Loop() {
		cycles.next(b, c.pair.InTree, &inTree)
		for range oursPerInTree {
			cycles.next(b, c.pair.Ours, &ours)
		}
	}
	reportSpread(b, inTree, ours)
}

func reportSpread(b *testing.B, inTree, ours spreadSamples) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // the loop's own time says nothing
	b.ReportMetric(float64(inTree.median().Microseconds()), "in-tree-us/pod")
	b.ReportMetric(float64(ours.median().Nanoseconds())/1000, "ours-us/pod")
	b.ReportMetric(float64(inTree.median())/float64(ours.median()), "times-faster")
}

// BenchmarkZoneSpreadCost is the cost of PreFilter and PreScore for a pod with a hard constraint over zones
// and a soft one over hosts, at growing numbers of pods and nodes.
func BenchmarkZoneSpreadCost(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{5000, 5_000}, {5000, 50_000}, {5000, 150_000}, {15_000, 150_000}} {
		b.Run(fmt.Sprintf("nodes=%d/pods=%d", size.nodes, size.pods), func(b *testing.B) {
			c, pod := newFilledCluster(b, size.nodes, size.pods)
			compareSpreadCost(b, c, pod)
		})
	}
}

// newFilledCluster returns a cluster with apps of 100 pods, and what makes another pod of one of them.
func newFilledCluster(b *testing.B, nodes, pods int) (c *spreadCluster, pod func(i int) *v1.Pod) {
	b.Helper()
	c = newSpreadCluster(b, nodes)
	apps := pods / podsPerApp
	c.fill(b, pods, apps)
	return c, func(i int) *v1.Pod {
		app := i * 13 % apps
		return c.newPod(app, spreadBy(app, v1.LabelTopologyZone, v1.DoNotSchedule), spreadBy(app, v1.LabelHostname, v1.ScheduleAnyway))
	}
}

// BenchmarkZoneSpreadGrowth is the same, ZoneSpread's at 150,000 pods against its own at 5,000. The two clusters take
// turns, so that both are measured on a machine that is as fast.
func BenchmarkZoneSpreadGrowth(b *testing.B) {
	var cycles [2]spreadCycles
	var took [2]spreadSamples
	for i, pods := range []int{5_000, 150_000} {
		cycles[i].cluster, cycles[i].pod = newFilledCluster(b, 5000, pods)
		cycles[i].next(b, cycles[i].cluster.pair.Ours, new(spreadSamples)) // the first cycle reads the whole cluster
	}
	for b.Loop() {
		for i := range cycles {
			for range oursPerInTree {
				cycles[i].next(b, cycles[i].cluster.pair.Ours, &took[i])
			}
		}
	}
	few, many := took[0].median(), took[1].median()
	b.ReportMetric(0, "ns/op") // the loop's own time says nothing
	b.ReportMetric(float64(few.Nanoseconds())/1000, "at-5k-us/pod")
	b.ReportMetric(float64(many.Nanoseconds())/1000, "at-150k-us/pod")
	b.ReportMetric(float64(many)/float64(few), "growth")
}

// BenchmarkZoneSpreadOneApp is the same where all pods are of one app, hard by zone and host.
func BenchmarkZoneSpreadOneApp(b *testing.B) {
	for _, pods := range []int{5_000, 150_000} {
		b.Run(fmt.Sprintf("nodes=5000/pods=%d", pods), func(b *testing.B) {
			c := newSpreadCluster(b, 5000)
			c.fill(b, pods, 1)
			compareSpreadCost(b, c, func(int) *v1.Pod {
				return c.newPod(0, spreadBy(0, v1.LabelTopologyZone, v1.DoNotSchedule), spreadBy(0, v1.LabelHostname, v1.DoNotSchedule),
					spreadBy(0, region, v1.ScheduleAnyway))
			})
		})
	}
}

// BenchmarkZoneSpreadNewSelector asks for a selector that nobody asked for before, in every cycle.
func BenchmarkZoneSpreadNewSelector(b *testing.B) {
	for _, perApp := range []int{1, 100, 5_000} {
		b.Run(fmt.Sprintf("nodes=5000/pods=150000/matching=%d", perApp), func(b *testing.B) {
			c := newSpreadCluster(b, 5000)
			apps := 150_000 / perApp
			c.fill(b, 150_000, apps)
			compareSpreadCost(b, c, func(i int) *v1.Pod {
				app := i % apps
				constraint := spreadBy(app, v1.LabelTopologyZone, v1.DoNotSchedule)
				// The apps come round, the text of the selector does not.
				constraint.LabelSelector.MatchExpressions = append(constraint.LabelSelector.MatchExpressions, notIn(fmt.Sprintf("never-%d", i)))
				return c.newPod(app, constraint)
			})
		})
	}
}

// BenchmarkZoneSpreadNodeRelabel moves a node to another zone before every cycle.
func BenchmarkZoneSpreadNodeRelabel(b *testing.B) {
	c := newSpreadCluster(b, 5000)
	const apps = 1500
	c.fill(b, 150_000, apps)
	compareSpreadCost(b, c, func(i int) *v1.Pod {
		at := i * 31 % len(c.nodes)
		moved := c.nodes[at].DeepCopy()
		moved.Labels[v1.LabelTopologyZone] = fmt.Sprintf("zone-%d", i%4)
		c.cache.UpdateNode(klog.Logger{}, c.nodes[at], moved)
		c.nodes[at] = moved
		c.update(b)
		app := i % apps
		return c.newPod(app, spreadBy(app, v1.LabelTopologyZone, v1.DoNotSchedule), spreadBy(app, v1.LabelHostname, v1.DoNotSchedule))
	})
}
