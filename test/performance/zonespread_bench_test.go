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

// oursPerInTree is how many cycles of ZoneSpread are timed for each of the much slower in-tree plugin.
const oursPerInTree = 25

// compareSpreadCost times both plugins in turns on the same snapshots, each cycle after one pod was assumed and
// one confirmed, and reports the medians and their ratio.
func compareSpreadCost(b *testing.B, c *spreadCluster, pod func(i int) *v1.Pod, keepSize bool) {
	b.Helper()
	var inTree, ours spreadSamples
	cycle := 0
	next := func(plugin parity.Plugin, out *spreadSamples) {
		cycle++
		p := pod(cycle)
		took, _ := c.cost(b, plugin, p, c.candidates(b, cycle*97))
		*out = append(*out, took)
		c.turn(b, p, (cycle*7919)%len(c.nodes), keepSize)
	}
	next(c.pair.Ours, &ours) // the first cycle reads the whole cluster
	ours = nil
	for b.Loop() {
		next(c.pair.InTree, &inTree)
		for range oursPerInTree {
			next(c.pair.Ours, &ours)
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
			compareSpreadCost(b, c, pod, true)
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

// BenchmarkZoneSpreadGrowth is the same, ZoneSpread's at 150,000 pods against its own at 5,000. The two clusters take turns, so
// that both are measured on a machine that is as fast.
func BenchmarkZoneSpreadGrowth(b *testing.B) {
	type side struct {
		cluster *spreadCluster
		pod     func(i int) *v1.Pod
		cycle   int
		took    spreadSamples
	}
	sides := make([]side, 2)
	for i, pods := range []int{5_000, 150_000} {
		sides[i].cluster, sides[i].pod = newFilledCluster(b, 5000, pods)
	}
	turn := func(s *side) {
		for range oursPerInTree {
			s.cycle++
			p := s.pod(s.cycle)
			took, _ := s.cluster.cost(b, s.cluster.pair.Ours, p, s.cluster.candidates(b, s.cycle*97))
			s.took = append(s.took, took)
			s.cluster.turn(b, p, (s.cycle*7919)%len(s.cluster.nodes), true)
		}
	}
	for i := range sides {
		turn(&sides[i]) // the first cycle reads the whole cluster
		sides[i].took = nil
	}
	for b.Loop() {
		for i := range sides {
			turn(&sides[i])
		}
	}
	few, many := sides[0].took.median(), sides[1].took.median()
	b.ReportMetric(0, "ns/op") // the loop's own time says nothing
	b.ReportMetric(float64(few.Nanoseconds())/1000, "few-us/pod")
	b.ReportMetric(float64(many.Nanoseconds())/1000, "many-us/pod")
	b.ReportMetric(float64(many)/float64(few), "many/few")
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
			}, true)
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
			}, true)
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
	}, true)
}
