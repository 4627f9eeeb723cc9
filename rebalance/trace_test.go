package rebalance_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/demo/workload"
	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/trace"
)

// TestTraceZoneReturns loses a fifth of a cluster that runs the services of a production trace, every other one spread by a policy and the rest
// by a constraint that is a wish. The zone comes back, and demand grows by a fifth. The plan brings back what room allows, with hardly more
// moves than the least possible, and no pod waits for it.
func TestTraceZoneReturns(t *testing.T) {
	traced := trace.New(trace.Options{Nodes: 300, Times: 8, Load: 0.4, Seed: 1})
	c := clitest.New()
	for _, n := range traced.Nodes {
		c.Node(n.Name, n.Zone, fmt.Sprintf("%dm", n.Capacity[workload.CPU]), fmt.Sprintf("%dMi", n.Capacity[workload.Memory]))
	}
	var more []func() *v1.Pod
	for i, service := range traced.Services {
		name := service.Name()
		change := func(t *v1.PodTemplateSpec) {
			wish := clitest.ZoneSpread(name, 1)
			wish.WhenUnsatisfiable = v1.ScheduleAnyway
			t.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{wish}
		}
		if i%2 == 0 {
			change = nil
			c.Policy(name, func(p *v1alpha1.ZoneSpreadPolicySpec) {
				p.UnavailableZones.DownAfter = &metav1.Duration{Duration: 10 * time.Second}
			})
		}
		add := c.Deployment(name, int32(service.Replicas), fmt.Sprintf("%dm", service.Each[workload.CPU]), fmt.Sprintf("%dMi", service.Each[workload.Memory]), change) //nolint:gosec // hundreds
		for range service.Replicas {
			add("")
		}
		for range int(math.Round(0.2 * float64(service.Replicas))) {
			more = append(more, func() *v1.Pod { return add("") })
		}
	}
	s := rest(t, c)
	loss := s.Lose(func(node *v1.Node) bool { return node.Labels[v1.LabelTopologyZone] == "c" })
	require.NoError(t, s.Run(t.Context()))
	require.NoError(t, s.ReturnNodes(loss))
	require.NoError(t, s.Run(t.Context()))
	for _, grow := range more {
		require.NoError(t, s.Add(grow()))
	}
	require.NoError(t, s.Run(t.Context()))

	pods, began := bound(s), time.Now()
	p, err := rebalance.Make(t.Context(), s, rebalance.Options{})
	require.NoError(t, err)
	require.True(t, p.Complete)
	t.Logf("%d nodes, %d services, %d pods: %d of %d rules hold before and %d after %d moves in %d batches, found in %s; the least is %d, of which %d are left; too many pods %d -> %d; %d refused",
		len(traced.Nodes), len(traced.Services), pods, holding(&p.Before), len(p.Before.Rules), holding(&p.After), len(p.Moves), p.Batches,
		time.Since(began).Round(time.Second), p.Before.Least, p.After.Least, p.Before.Excess, p.After.Excess, len(p.Refused))
	require.Less(t, float64(holding(&p.Before)), 0.8*float64(len(p.Before.Rules)), "the cluster has drifted")
	require.GreaterOrEqual(t, float64(holding(&p.After)), 0.9*float64(len(p.After.Rules)), "services within maxSkew")
	require.LessOrEqual(t, float64(len(p.Moves)), 1.1*float64(p.Before.Least-p.After.Least), "moves, as many as the least for what room allows")

	carryOut(t, s, p)
	require.Equal(t, pods, bound(s), "no pod waits")
	for _, pod := range sim.List[*v1.Pod](s) {
		require.NotEmpty(t, pod.Spec.NodeName)
	}
}

// holding counts the rules that hold.
func holding(s *rebalance.Standing) (n int) {
	for _, r := range s.Rules {
		if r.Excess == 0 {
			n++
		}
	}
	return n
}
