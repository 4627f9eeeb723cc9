package counts

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// pool is the eligibility of pods that select the nodes of one pool. It counts how many nodes are looked at.
type pool struct {
	name   string
	looked *atomic.Int64
}

func (p pool) Key() string { return p.name }

func (p pool) Eligible(node *v1.Node) bool {
	p.looked.Add(1)
	return node.Labels["pool"] == p.name
}

// newPools returns an index of so many node pools of equal size, and the query of each pool's pods.
func newPools(limits Limits, pools, size int) (ix *Index, queries []Query, looked *atomic.Int64) {
	w := &world{}
	looked = &atomic.Int64{}
	for i := range pools {
		name := fmt.Sprintf("pool-%d", i)
		for j := range size {
			host := fmt.Sprintf("pool-%d", i+j*pools)
			n := &fakeNode{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{
				Name:   host,
				Labels: map[string]string{"zone": "a", "host": host, "pool": name},
			}}}
			w.bump(n)
			w.nodes = append(w.nodes, n)
		}
		queries = append(queries, Query{
			Namespace: "shop", Selector: labels.Everything(), TopologyKey: "zone",
			Eligibility: pool{name, looked},
		})
	}
	ix = NewIndex(limits)
	update(ix, w.snapshot())
	return ix, queries, looked
}

// TestManyNodePoolsUsedInTurns: in a cluster of 15,000 nodes, the eligible nodes of 300 node pools, whose pods are
// spread over zones and hosts, stay known, so that a pod's cost does not depend on the others.
func TestManyNodePoolsUsedInTurns(t *testing.T) {
	const pools, size = 300, 50
	ix, queries, looked := newPools(DefaultLimits(), pools, size)
	for range 2 {
		for _, overZones := range queries {
			overHosts := overZones
			overHosts.TopologyKey = "host"
			tables := ix.Count([]Query{overZones, overHosts}, nil)
			require.Equal(t, 1, tables[0].Domains())
			require.Equal(t, size, tables[1].Domains())
		}
	}
	require.EqualValues(t, 2*pools*pools*size, looked.Load(), "each pool looks at each node once for each key")
	require.EqualValues(t, 2*pools, ix.Stats().ClassesBuilt)
	require.Zero(t, ix.Stats().ClassesEvicted)
}

// TestClassesAreBoundedByBytes: the classes take no more memory than the limit, whatever the number of nodes.
func TestClassesAreBoundedByBytes(t *testing.T) {
	limits := DefaultLimits()
	limits.ClassBytes = 10_000
	ix, queries, _ := newPools(limits, 200, 1)
	for i := range queries {
		ix.Count(queries[i:i+1], nil)
		bytes := 0
		for _, c := range ix.classes {
			bytes += c.bytes()
		}
		require.LessOrEqual(t, bytes, limits.ClassBytes)
	}
	require.Positive(t, ix.Stats().Classes)
	require.EqualValues(t, len(queries)-ix.Stats().Classes, ix.Stats().ClassesEvicted)
}

// TestSingleNodeIsNoClass: the pods of a DaemonSet, each of which names its node, drop nobody's class.
func TestSingleNodeIsNoClass(t *testing.T) {
	ix, queries, _ := newPools(DefaultLimits(), 3, 1)
	ix.Count(queries[:1], nil)
	for i := range 4 {
		pod := &v1.Pod{Spec: v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchFields: []v1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn,
					Values: []string{fmt.Sprintf("pool-%d", i)},
				}},
			}}},
		}}}}
		query := Query{
			Namespace: "shop", Selector: labels.Everything(), TopologyKey: "zone",
			Eligibility: EligibilityOf(pod, true, true, false),
		}
		domains := ix.Count([]Query{query}, nil)[0].Domains()
		require.Equal(t, i < 3, domains == 1, "the last node does not exist")
	}
	require.Equal(t, 1, ix.Stats().Classes)
}
