package rebalance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/trace"
)

// TestTraceZoneReturns loses a fifth of a cluster that runs services drawn from a production trace, every other one
// spread by a policy and the rest by a constraint that is a wish. The zone comes back, and demand grows by a fifth.
// The plan brings 97 percent of the services within maxSkew, with as few moves as possible, and no pod waits for it.
func TestTraceZoneReturns(t *testing.T) {
	traced := trace.New(trace.Options{Nodes: 300, Services: 331, Pods: 2100, Load: 0.4, Seed: 1})
	require.Len(t, traced.Services, 331)
	require.Equal(t, 2100, traced.Replicas())
	spread := traced.Spread(v1.ScheduleAnyway)
	s := rest(t, spread.Cluster)
	require.Equal(t, 2100, bound(s))
	require.NoError(t, spread.ReturnZone(t.Context(), s))

	pods, began := bound(s), time.Now()
	p, err := rebalance.Make(t.Context(), s, rebalance.Options{})
	require.NoError(t, err)
	require.True(t, p.Complete)
	before, after := holding(&p.Before), holding(&p.After)
	t.Logf("%d nodes, %d services, %d pods: %d of %d rules hold before and %d after %d moves in %d batches, found in %s; the least is %d, of which %d are left; too many pods %d -> %d; %d refused",
		len(traced.Nodes), len(traced.Services), pods, before, len(p.Before.Rules), after, len(p.Moves), p.Batches,
		time.Since(began).Round(time.Second), least(&p.Before), least(&p.After), p.Before.Excess, p.After.Excess, len(p.Refused))
	require.Len(t, p.After.Rules, 331, "each service has one rule")
	require.Less(t, float64(before), 0.8*331, "the cluster has drifted")
	require.GreaterOrEqual(t, float64(after), 0.96*331, "services within maxSkew")
	require.Len(t, p.Moves, least(&p.Before)-least(&p.After), "as few moves as possible for what they come to")
	carryOut(t, s, p)
	require.Equal(t, pods, bound(s), "no pod waits")
	for _, pod := range sim.List[*v1.Pod](s) {
		require.NotEmpty(t, pod.Spec.NodeName)
	}
}

// least is how few moves bring all services within maxSkew 1 over the three zones.
func least(s *rebalance.Standing) (moves int) {
	for _, r := range s.Rules {
		moves += clitest.LeastMoves(r.Pods, 3)
	}
	return moves
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
