package rebalance_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// drift makes a cluster of three zones whose pods have drifted, with constraints, policies, budgets, reservations and
// pods that may not move.
func drift(r *rand.Rand) *clitest.Cluster {
	c := clitest.New()
	var nodes []string
	for i := range 3 + r.IntN(6) {
		name := fmt.Sprintf("node-%d", i)
		c.Node(name, string(rune('a'+i%3)), fmt.Sprint(4+4*r.IntN(3)), "64Gi")
		nodes = append(nodes, name)
	}
	for i := range 2 + r.IntN(5) {
		app, cpu := fmt.Sprintf("app-%d", i), fmt.Sprint(1+r.IntN(2))
		var on []string
		fixed := r.IntN(len(nodes)) // the pods are on a few nodes
		for range 1 + r.IntN(5) {
			on = append(on, nodes[(fixed+r.IntN(2))%len(nodes)])
		}
		policy := r.IntN(2) == 0
		change := spread(app, 1+int32(r.IntN(2))) //nolint:gosec // small
		if policy {
			change = nil
		}
		pods := c.Running(app, cpu, both(change, priority(int32(r.IntN(2)*10))), on...) //nolint:gosec // small
		if policy {
			c.Policy(app, func(p *v1alpha1.ZoneSpreadPolicySpec) {
				if r.IntN(2) == 0 {
					p.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a", Weight: ptr.To(int32(1 + r.IntN(3)))}} //nolint:gosec // small
				}
				if r.IntN(3) == 0 {
					p.WhenUnsatisfiable = v1alpha1.ScheduleAnyway
				}
			})
		}
		if r.IntN(3) == 0 {
			c.Budget(app, int32(max(0, len(on)-r.IntN(2)))) //nolint:gosec // small
		}
		if r.IntN(3) == 0 {
			pods[0].Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
		}
	}
	if r.IntN(2) == 0 {
		c.Reservation("spare", "app-0", "1", 5, map[string]int64{nodes[r.IntN(len(nodes))]: 1})
	}
	return c
}

// TestPlansOfRandomClusters: carried out on another copy, a plan comes to what it says, wakes no waiting, keeps every
// pod running, and the next plan is empty.
func TestPlansOfRandomClusters(t *testing.T) {
	moves, complete := 0, 0
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := drift(rand.New(rand.NewPCG(seed, 11)))
			s := rest(t, c)
			p := plan(t, s)
			require.LessOrEqual(t, p.After.Excess+int64(len(p.Moves)), p.Before.Excess, "each move lowers the potential by one at least")
			if p.After.Excess == 0 {
				complete++
			}
			moves += len(p.Moves)
			running := bound(s)
			carryOut(t, s, p)
			require.Equal(t, running, bound(s), "as many pods run as before")
			again := plan(t, s)
			require.Empty(t, again.Moves, "%v", again.Moves)
			require.Equal(t, p.After.Excess, again.Before.Excess, "the plan comes to what it says")
		})
	}
	t.Logf("%d moves; %d clusters are spread in the end", moves, complete)
	require.Positive(t, moves)
	require.Positive(t, complete)
}

// bound counts the pods that have a node.
func bound(s *sim.Sim) (n int) {
	for _, pod := range sim.List[*v1.Pod](s) {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}
