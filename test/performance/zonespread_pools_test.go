package performance

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// BenchmarkZoneSpreadNodePools is the cost of PreFilter and PreScore for pods that select a node pool: of 300 pools in turns against
// one. Both take turns on one cluster.
func BenchmarkZoneSpreadNodePools(b *testing.B) {
	const pools, apps = 300, 300
	for _, nodes := range []int{5000, 15_000} {
		b.Run(fmt.Sprintf("nodes=%d/pools=%d", nodes, pools), func(b *testing.B) {
			c := newSpreadCluster(b, nodes)
			for i, node := range c.nodes {
				pooled := node.DeepCopy()
				pooled.Labels = labels.Merge(pooled.Labels, map[string]string{"pool": fmt.Sprintf("pool-%d", i%pools)})
				c.cache.UpdateNode(klog.Logger{}, node, pooled)
				c.nodes[i] = pooled
			}
			c.fill(b, 10*nodes, apps)
			inPool := func(app, pool int) *v1.Pod {
				pod := c.newPod(app, spreadBy(app, v1.LabelTopologyZone, v1.DoNotSchedule), spreadBy(app, v1.LabelHostname, v1.DoNotSchedule))
				pod.Spec.NodeSelector = map[string]string{"pool": fmt.Sprintf("pool-%d", pool)}
				return pod
			}
			cycles := []spreadCycles{
				{cluster: c, pod: func(i int) *v1.Pod { return inPool(i%apps, 0) }},
				{cluster: c, pod: func(i int) *v1.Pod { return inPool(i%apps, i%pools) }},
			}
			took := make([]spreadSamples, len(cycles))
			for i := range 2 * pools { // all pools are known then
				cycles[i%2].next(b, c.pair.Ours, new(spreadSamples))
			}
			for b.Loop() {
				for i := range cycles {
					for range oursPerInTree {
						cycles[i].next(b, c.pair.Ours, &took[i])
					}
				}
			}
			one, many := took[0].median(), took[1].median()
			b.ReportMetric(0, "ns/op") // the loop's own time says nothing
			b.ReportMetric(float64(one.Nanoseconds())/1000, "one-pool-us/pod")
			b.ReportMetric(float64(many.Nanoseconds())/1000, "all-pools-us/pod")
			b.ReportMetric(float64(many)/float64(one), "ratio")
		})
	}
}
