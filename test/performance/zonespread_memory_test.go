package performance

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/plugins/zonespread/counts"
)

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
