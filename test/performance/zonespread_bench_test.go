package performance

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/zonespread/counts"
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

func notIn(value string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}}
}

// growSpread schedules pods into an empty cluster, one by one from the first to the last, with ZoneSpread, and
// lets the in-tree plugin judge a few of them at ten points on the way. It reports the medians of the
// first and the last tenth, and how much the cost has grown between.
func growSpread(b *testing.B, c *spreadCluster, total, apps int, pod func(app int) *v1.Pod) {
	b.Helper()
	c.update(b)
	for b.Loop() {
		tenths := make([]spreadSamples, 10)
		inTree := make([]spreadSamples, 10)
		for i := range total {
			app := i % apps
			p := pod(app)
			candidates := c.candidates(b, i*97)
			tenth := i * 10 / total
			// Not the very first of each tenth, which warms up.
			if at := i - tenth*total/10; at > 0 && at <= 3 {
				took, _ := c.cost(b, c.pair.InTree, p, candidates)
				inTree[tenth] = append(inTree[tenth], took.sum())
			}
			took, state := c.cost(b, c.pair.Ours, p, candidates)
			tenths[tenth] = append(tenths[tenth], took.sum())

			home := c.home(app, i/apps)
			if i%1000 == 0 && len(p.Spec.TopologySpreadConstraints) > 0 && p.Spec.TopologySpreadConstraints[0].WhenUnsatisfiable == v1.DoNotSchedule {
				info, err := c.snapshot.NodeInfos().Get(c.nodes[home].Name)
				require.NoError(b, err)
				status := c.pair.Ours.Filter(context.Background(), state, p, info)
				require.True(b, status.IsSuccess(), "pod %d of app %d on %s: %v", i/apps, app, c.nodes[home].Name, status)
			}
			c.turn(b, p, home, false)
		}
		for i := range tenths {
			b.Logf("after %6d pods: ours %8v in-tree %8v", i*total/10, tenths[i].median(), inTree[i].median())
		}
		first, last := tenths[0].median(), tenths[9].median()
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(first.Nanoseconds())/1000, "first-us/pod")
		b.ReportMetric(float64(last.Nanoseconds())/1000, "last-us/pod")
		b.ReportMetric(float64(last)/float64(first), "growth")
		b.ReportMetric(float64(inTree[9].median().Microseconds()), "in-tree-last-us/pod")
		b.ReportMetric(float64(inTree[9].median())/float64(last), "times-faster")
	}
}

// BenchmarkZoneSpreadIssue105750 has the shape of kubernetes/kubernetes issue 105750: 5,000 deployments of
// 30 pods in one namespace, each spread by its own label over zones and hosts. Run it with -benchtime=1x.
func BenchmarkZoneSpreadIssue105750(b *testing.B) {
	c := newSpreadCluster(b, 5000)
	growSpread(b, c, 150_000, 5000, func(app int) *v1.Pod {
		return c.newPod(app, spreadBy(app, v1.LabelTopologyZone, v1.DoNotSchedule), spreadBy(app, v1.LabelHostname, v1.DoNotSchedule))
	})
}

// BenchmarkZoneSpreadIssue128949 has the shape of kubernetes/kubernetes issue 128949: one app of 100,000
// pods on 2,000 nodes, spread softly over regions and hosts. Run it with -benchtime=1x.
func BenchmarkZoneSpreadIssue128949(b *testing.B) {
	c := newSpreadCluster(b, 2000)
	growSpread(b, c, 100_000, 1, func(app int) *v1.Pod {
		return c.newPod(app, spreadBy(app, region, v1.ScheduleAnyway), spreadBy(app, v1.LabelHostname, v1.ScheduleAnyway))
	})
}

// spreadHeap is the memory in use after a collection.
func spreadHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // not that large
}

// BenchmarkZoneSpreadMemory reports what the index holds beyond the pods and nodes, which the scheduler's
// cache has anyway: per pod, and per selector whose pods are on as many nodes as there are of them. In
// "own-labels" every pod has a label value of its own, as those of a StatefulSet have.
func BenchmarkZoneSpreadMemory(b *testing.B) {
	for _, own := range []bool{false, true} {
		name := "pods=150000/apps=5000"
		if own {
			name += "/own-labels"
		}
		b.Run(name, func(b *testing.B) {
			const pods, apps = 150_000, 5000
			c := newSpreadCluster(b, 5000)
			c.fillWith(b, pods, apps, func(p *v1.Pod) {
				if own {
					p.Labels["statefulset.kubernetes.io/pod-name"] = p.Name
				}
			})
			nodes, err := c.snapshot.NodeInfos().List()
			require.NoError(b, err)
			generations := make([]int64, len(nodes))
			for i, n := range nodes {
				generations[i] = n.GetGeneration()
			}
			var perPod, perSelector float64
			for b.Loop() {
				before := spreadHeap()
				ix := counts.NewIndex(counts.DefaultLimits())
				counts.Update(ix, nodes, generations)
				ix.Count([]counts.Query{{Namespace: "nobody", Selector: labels.Everything(), TopologyKey: v1.LabelTopologyZone}}, nil)
				filled := spreadHeap()
				for app := range apps {
					selector, err := metav1.LabelSelectorAsSelector(spreadBy(app, "", v1.DoNotSchedule).LabelSelector)
					require.NoError(b, err)
					ix.Count([]counts.Query{{Namespace: "default", Selector: selector, TopologyKey: v1.LabelTopologyZone}}, nil)
				}
				require.Equal(b, apps+1, ix.Stats().Selectors)
				perPod = float64(filled-before) / pods
				perSelector = float64(spreadHeap()-filled) / apps
				runtime.KeepAlive(ix)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(perPod, "B/pod")
			b.ReportMetric(perSelector, "B/selector")
		})
	}
}
