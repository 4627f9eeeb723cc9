package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// BenchmarkCycle is what ReserveCache costs a pod that owns no slots in a cluster of 1,000 nodes, on each of which one slot
// is held: PreFilter once and Filter for each node that is looked at.
func BenchmarkCycle(b *testing.B) {
	const nodes = 1000
	objects := make([]*v1.Node, 0, nodes)
	var pods []*v1.Pod
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		objects = append(objects, st.MakeNode().Name(name).UID(name).Label(v1.LabelTopologyZone, string(rune('a'+i%3))).
			Capacity(map[v1.ResourceName]string{"cpu": "32", "memory": "128Gi", "pods": "110"}).Obj())
		for j := range 5 {
			pods = append(pods, st.MakePod().Namespace("default").Name(fmt.Sprintf("pod-%d-%d", i, j)).UID(fmt.Sprintf("pod-%d-%d", i, j)).
				Node(name).Req(map[v1.ResourceName]string{"cpu": "100m", "memory": "500Mi"}).Obj())
		}
	}
	pod := st.MakePod().Namespace("default").Name("p").UID("p").Req(map[v1.ResourceName]string{"cpu": "100m", "memory": "500Mi"}).Obj()
	shared := reservecache.NewShared()
	fw := newFramework(b, shared, objects, pods)
	infos, err := fw.SnapshotSharedLister().NodeInfos().List()
	require.NoError(b, err)
	plugin, err := shared.New(b.Context(), nil, fw)
	require.NoError(b, err)
	pl := plugin.(*reservecache.ReserveCache)
	for _, held := range []bool{false, true} {
		if held {
			for i := range 100 {
				claim := holds.Claim{UID: types.UID(fmt.Sprint(i)), Name: fmt.Sprint(i), Slot: ledger.Resources{MilliCPU: 2000, Memory: 4 << 30}}
				shared.Holds().SetClaim(claim)
				for j := range nodes / 100 {
					shared.Holds().Change(claim.UID, []holds.Change{{Node: fmt.Sprintf("node-%d", i*nodes/100+j), Add: claim.SlotsAmount(1)}})
				}
			}
		}
		state := framework.NewCycleState()
		_, status := pl.PreFilter(b.Context(), state, pod, infos)
		require.Equal(b, held, !status.IsSkip())
		b.Run(fmt.Sprintf("held=%t/PreFilter", held), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pl.PreFilter(b.Context(), framework.NewCycleState(), pod, infos)
			}
		})
		if !held {
			continue // Filter is skipped
		}
		b.Run("held=true/Filter", func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if status := pl.Filter(b.Context(), state, pod, infos[i%nodes]); !status.IsSuccess() {
					b.Fatal(status)
				}
				i++
			}
		})
	}
}
