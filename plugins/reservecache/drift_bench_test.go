package reservecache

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// BenchmarkDriftCheck is one comparison of 5,000 nodes with 10 pods each: when nothing changed since the
// last, as is nearly always so, and when everything did.
func BenchmarkDriftCheck(b *testing.B) {
	const nodes, podsPerNode = 5000, 10
	l := ledger.New(ledger.DefaultOptions())
	infos := make([]fwk.NodeInfo, nodes)
	for i := range infos {
		node := makeNode(fmt.Sprintf("n%d", i))
		l.AddNode(node)
		info := &nodeInfo{node: node, generation: int64(i), requested: resources{milliCPU: podsPerNode * 1000}}
		for j := range podsPerNode {
			pod := makePod(fmt.Sprintf("p%d-%d", i, j), node.Name)
			_, err := l.AddPod(pod)
			require.NoError(b, err)
			info.pods = append(info.pods, podInfo{pod: pod})
		}
		infos[i] = info
	}
	check := func(d *driftDetector, i int) {
		d.check(klog.Background(), infos, t0.Add(time.Duration(i)*time.Hour))
	}
	b.Run("unchanged", func(b *testing.B) {
		d := newDriftDetector(l, time.Second, func(string) bool { return true })
		check(d, 0)
		for i := 1; b.Loop(); i++ {
			check(d, i)
		}
		require.Zero(b, d.report().Unsettled)
	})
	b.Run("all changed", func(b *testing.B) {
		for b.Loop() {
			d := newDriftDetector(l, time.Second, func(string) bool { return true })
			check(d, 0)
			require.Zero(b, d.report().Unsettled)
		}
	})
}
