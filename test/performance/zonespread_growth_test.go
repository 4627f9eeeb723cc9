package performance

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
