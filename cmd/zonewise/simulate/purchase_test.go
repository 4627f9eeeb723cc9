package simulate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/cluster/census"
	"zonewise.dev/sim"
	"zonewise.dev/test/build"
	"zonewise.dev/test/clitest"
)

// TestPurchase: the fewest nodes after which no zone's loss leaves a pod Pending, that none are needed, and that none
// would help.
func TestPurchase(t *testing.T) {
	find := func(c *clitest.Cluster, scenarios ...Scenario) (*Purchase, string) {
		var results []*Result
		for i := range scenarios {
			results = append(results, run(t, c, &scenarios[i]))
		}
		var tried []string
		b, err := FindPurchase(t.Context(), census.Take(c.Snapshot), scenarios, results, sim.Options{}, func(words string) { tried = append(tried, words) })
		require.NoError(t, err)
		report := NewReport(results, DefaultFailures)
		report.Buy = b
		_, last, _ := strings.Cut(textOf(t, report), "To buy")
		require.Equal(t, len(b.Nodes) > 0 || !b.Enough, len(tried) > 0)
		return b, strings.Join(strings.Fields(last), " ")
	}
	each := []Scenario{{Zones: []string{"a"}}, {Zones: []string{"b"}}, {Zones: []string{"c"}}}
	cluster := func(cpu string, constraint ...corev1.TopologySpreadConstraint) *clitest.Cluster {
		c := zones(cpu)
		c.Running("web", "1", func(template *corev1.PodTemplateSpec) { template.Spec.TopologySpreadConstraints = constraint }, onEach(12)...)
		return c
	}
	b, words := find(cluster("5"), each...)
	require.Equal(t, &Purchase{Enough: true, Nodes: []PurchasedNodes{{1, "node-a", "a"}, {1, "node-b", "b"}}}, b)
	require.Equal(t, "1 node like node-a in zone a, 1 node like node-b in zone b: then no pod stays Pending", words)

	b, _ = find(cluster("4"), each[0])
	require.Equal(t, &Purchase{Enough: true, Nodes: []PurchasedNodes{{1, "node-b", "b"}}}, b)

	b, words = find(cluster("6"), each...)
	require.Equal(t, &Purchase{Enough: true, Nodes: []PurchasedNodes{}}, b)
	require.Equal(t, "nothing: no pod stays Pending", words)

	// The kinds of nodes that each zone has most of are for others, and are not what is bought.
	pools := cluster("5")
	for _, zone := range []string{"a", "b", "c"} {
		for i, pool := range []string{"gpu", "arm", "infra"} {
			for j := range 2 {
				pools.Node(fmt.Sprintf("%s-%s-%d", zone, pool, j), zone, strconv.Itoa(16+i), "64Gi", corev1.Taint{Key: "pool", Value: pool, Effect: corev1.TaintEffectNoSchedule})
			}
		}
	}
	b, _ = find(pools, each...)
	require.Equal(t, &Purchase{Enough: true, Nodes: []PurchasedNodes{{1, "node-a", "a"}, {1, "node-b", "b"}}}, b)

	// Pods that may be in the lost zone alone: no node is tried, and no copy is larger than the cluster.
	bound := cluster("6")
	for _, pod := range bound.Pods() {
		if pod.Spec.NodeName == "node-a" {
			pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "a"}
		}
	}
	results := []*Result{run(t, bound, &each[0])}
	require.Equal(t, 4, results[0].Pending)
	b, err := FindPurchase(t.Context(), census.Take(bound.Snapshot), each[:1], results, sim.Options{}, func(words string) { t.Errorf("tried: %s", words) })
	require.NoError(t, err)
	require.Equal(t, &Purchase{Nodes: []PurchasedNodes{}}, b)

	three := build.OverZones("web", 1, corev1.DoNotSchedule)
	three.MinDomains = ptr.To[int32](3)
	b, words = find(cluster("4", three), each[0])
	require.False(t, b.Enough, "a constraint wants the zone that is lost")
	require.Equal(t, "no number of nodes like those of the cluster lets all pods run", words)
}
