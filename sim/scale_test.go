package sim_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim"
)

// large is a cluster of three zones with equal nodes, and pods of workloads of 150 of which every other one has a
// constraint over zones.
func large(nodes, pods int) []client.Object {
	const replicas = 150
	var objects []client.Object
	for i := range nodes {
		objects = append(objects, node(fmt.Sprintf("node-%05d", i), string(rune('a'+i%3)), "32"))
	}
	for i := range pods {
		app := fmt.Sprintf("app-%04d", i/replicas)
		p := pod(fmt.Sprintf("%s-%06d", app, i), app, "500m", func(p *v1.Pod) {
			if (i/replicas)%2 == 0 {
				p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{overZones(app)}
			}
			p.Spec.NodeName, p.Status.Phase = fmt.Sprintf("node-%05d", i%nodes), v1.PodRunning
		})
		objects = append(objects, p)
	}
	return objects
}

func overZones(app string) v1.TopologySpreadConstraint {
	return v1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}
}

// BenchmarkLargeCluster copies a cluster of 5,000 nodes and 150,000 pods, asks about a pod, and loses a zone of it.
func BenchmarkLargeCluster(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(sim.GCPercent))
	for b.Loop() {
		objects := large(5000, 150000)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		s, err := sim.New(b.Context(), objects, sim.Options{})
		require.NoError(b, err)
		b.ReportMetric(time.Since(began).Seconds(), "s-to-copy")
		began = time.Now()
		answer, err := s.Evaluate(b.Context(), pod("another", "another", "1"))
		require.NoError(b, err)
		require.Len(b, answer.FittingNodes(), 5000)
		b.ReportMetric(time.Since(began).Seconds(), "s-to-ask")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB-of-the-copy")
		began = time.Now()
		loss := s.Lose(func(n *v1.Node) bool { return n.Labels[v1.LabelTopologyZone] == "a" })
		require.NoError(b, s.Run(b.Context()))
		b.ReportMetric(time.Since(began).Seconds(), "s-to-lose-a-zone")
		b.ReportMetric(float64(len(loss.Displaced))/time.Since(began).Seconds(), "pods/s")
		for _, p := range sim.List[*v1.Pod](s) {
			require.NotEmpty(b, p.Spec.NodeName)
		}
		s.Close()
	}
}
