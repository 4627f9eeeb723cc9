package floor_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// benchNodes are how many nodes of 32 CPUs in three zones a benchmark has.
const benchNodes = 5000

// crowd is a floor over nodes that are filled but for free, and its nodes.
func crowd(free int64, claims []floor.Claim) (*floor.Floor, []*floor.Node) {
	f := floor.New(1)
	f.SetClaims(claims)
	nodes := make([]*floor.Node, benchNodes)
	for i := range nodes {
		object := &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("n%04d", i), Labels: map[string]string{v1.LabelTopologyZone: zoneName(i % 3), "pool": fmt.Sprint(i % 100)},
		}}
		nodes[i] = &floor.Node{
			Object: object, Generation: 1, Allocatable: ledger.Resources{MilliCPU: 32000, Memory: 128 << 30, Pods: 110},
			Requested: ledger.Resources{MilliCPU: 32000 - free, Memory: 64 << 30, Pods: 10},
		}
		f.Update(nodes[i])
	}
	f.Settle()
	return f, nodes
}

// benchClaims are claims of so many slots of a size in each zone.
func benchClaims(n, slots int, slot ledger.Resources) []floor.Claim {
	all := make([]floor.Claim, n)
	for i := range all {
		all[i] = floor.Claim{
			UID: types.UID(fmt.Sprint("c", i)), Name: fmt.Sprint("c", i), Created: time.Unix(int64(i), 0), Slot: slot,
			Nodes: floor.NewNodeRequirements(map[string]string{"pool": fmt.Sprint(i % 100)}, nil, false),
			Zones: map[string]int{"a": slots, "b": slots, "c": slots},
		}
	}
	return all
}

// BenchmarkCycle is what a floor has to do in a scheduling cycle on 5,000 nodes in which the room of one node has
// changed: Update, Settle, and Fit of a stranger on 100 nodes.
func BenchmarkCycle(b *testing.B) {
	anywhere := benchClaims(1, 1667, size(1000, 1))
	anywhere[0].Nodes, anywhere[0].Inclusive = anyNode, true
	onEach := benchClaims(30, benchNodes/3, size(100, 0))
	for i := range onEach {
		onEach[i].Nodes, onEach[i].PerNode = anyNode, 1
	}
	for _, bench := range []struct {
		name   string
		claims []floor.Claim
	}{
		{"no claims", nil},
		{"1,000 claims have their slots", benchClaims(1000, 3, size(1000, 1))},
		{"1,000 claims lack all slots", benchClaims(1000, 3, size(16000, 1))},
		{"one claim of 5,000 slots, an owner comes or goes", anywhere},
		{"30 claims on each node", onEach},
	} {
		b.Run(bench.name, func(b *testing.B) {
			f, nodes := crowd(12000, bench.claims)
			stranger := floor.Pod{Request: size(1000, 1)}
			owned := map[types.UID]ledger.Resources{"c0": size(1000, 1)}
			generation := int64(1)
			for b.Loop() {
				generation++
				n := nodes[int(generation)%benchNodes]
				n.Generation = generation
				if n.Requested.MilliCPU == 20000 {
					n.Requested.MilliCPU, n.Owned = 21000, owned
				} else {
					n.Requested.MilliCPU, n.Owned = 20000, nil
				}
				f.Update(n)
				f.Settle()
				for _, at := range nodes[:100] {
					f.Fit(&stranger, &floor.At{Node: at.Object.Name, Generation: at.Generation, Allocatable: at.Allocatable, Requested: at.Requested})
				}
			}
		})
	}
}

// BenchmarkStart is a floor of 1,000 claims of ten slots over 5,000 nodes that is made from nothing.
func BenchmarkStart(b *testing.B) {
	claims := benchClaims(1000, 3, size(1000, 1))
	for b.Loop() {
		crowd(12000, claims)
	}
}
