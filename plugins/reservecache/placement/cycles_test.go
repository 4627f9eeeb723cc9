package placement

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// TestChurnLeavesNothingBehind: pods and nodes that come and go do not make the rooms grow, whether or not cycles look at it.
func TestChurnLeavesNothingBehind(t *testing.T) {
	for name, cycles := range map[string]int{"no cycle has looked": 0, "one has": 1} {
		t.Run(name, func(t *testing.T) {
			s := cluster(2, "a")
			s.reconcile(t, target("r", 0, Zone{"a", 9}))
			for range cycles {
				s.collect()
			}
			s.reconcile(t, target("r", 0, Zone{"a", 1}))
			for i := range 200 {
				pod := fmt.Sprintf("p%d", i)
				s.add(t, makePod(pod, "a1", "1"))
				s.ledger.AddNode(makeNode("passing", "a", "4"))
				s.reconcile(t)
				s.end(pod)
				s.ledger.RemoveNode(makeNode("passing", "a", "4"))
				s.reconcile(t)
			}
			for _, nodes := range []*nodeSet{s.planner.ledgerNodes, s.planner.cycleNodes} {
				require.LessOrEqual(t, len(nodes.byName), 3)
				require.Empty(t, nodes.removed)
			}
			changes := s.planner.ledgerNodes.changes
			require.Empty(t, changes.toRecount)
		})
	}
}

// TestCyclesDoNotWaitWhenNothingIsMissing: owners of a Guarantee come and go without the cycles of other pods waiting for the planner.
func TestCyclesDoNotWaitWhenNothingIsMissing(t *testing.T) {
	s := cluster(1, "a")
	d := target("r", 0, Zone{"a", 2})
	d.Claim.Use = holds.UseFirst
	s.reconcile(t, d)
	s.consume(t, "p", "a1", "1", "r")
	s.planner.mu.Lock() // Reconcile is in the midst of a draft
	s.collect()
	s.planner.mu.Unlock()

	// A slot of headroom that a pod took is replaced before the next pod takes the room.
	d.Claim.Use = holds.UseLast
	s.reconcile(t, d)
	uses, fits := s.schedule(t, s.view(), "a1", makePod("q", "", "3"), "r")
	require.True(t, fits)
	require.True(t, uses)
	s.end("p")
	require.Equal(t, []types.UID{"r"}, s.collect())
}

// TestCyclesAskAboutFewNominations: hundreds of preemptors, as after the loss of a zone, do not make each cycle ask about all of them.
func TestCyclesAskAboutFewNominations(t *testing.T) {
	s := cluster(200, "a")
	for i := range 200 {
		s.nominated[fmt.Sprintf("a%d", i+1)] = ledger.Resources{MilliCPU: 4000, Pods: 1}
	}
	s.reconcile(t, target("r", 0, Zone{"a", 200}))
	require.Greater(t, len(s.planner.nominated), queriesPerCycle)
	asked := 0
	ask := s.planner.nominatedOn
	s.planner.nominatedOn = func(node string) ledger.Resources {
		asked++
		return ask(node)
	}
	s.collect()
	require.LessOrEqual(t, asked, queriesPerCycle)

	// A nomination that has ended is found out in turn, and all are when the planner looks.
	clear(s.nominated)
	s.reconcile(t)
	require.Equal(t, int64(200), s.report(t, "r").Held.Pods)
}

// TestNoSlotIsPlacedOverAPodThatIsAdmittedMeanwhile: after the worker has read the nodes, and before it records what it places there, Reserve
// has a pod assumed.
func TestNoSlotIsPlacedOverAPodThatIsAdmittedMeanwhile(t *testing.T) {
	slot := ledger.Resources{MilliCPU: 1000, Pods: 1}
	for name, test := range map[string]struct {
		target Target
		admit  func(t *testing.T, s *scene)
	}{
		"a pod that takes nothing of a hold": {
			target: target("r", 0, Zone{"a", 1}),
			admit: func(t *testing.T, s *scene) {
				require.NoError(t, s.ledger.AssumePod(makePod("plain", "", "1"), "a1", t0))
			},
		},
		"beside an amount": {
			target: targetOn("r", 0, map[string]ledger.Resources{"a1": slot}),
			admit: func(t *testing.T, s *scene) {
				require.NoError(t, s.ledger.AssumePod(makePod("plain", "", "1"), "a1", t0))
			},
		},
		"a pod that takes a slot": {
			target: target("r", 0, Zone{"a", 2}),
			admit: func(t *testing.T, s *scene) {
				s.holds.Change("r", []holds.Change{{Node: "a1", Zone: "a", Add: slot}})
				_, err := s.holds.Take("r", "a1", &slot)
				require.NoError(t, err)
				require.NoError(t, s.ledger.AssumePod(owned(makePod("owner", "", "1"), "r"), "a1", t0))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(1, "a")
			s.add(t, makePod("other", "a1", "3"))
			admitted := false
			s.planner.nominatedOn = func(string) (none ledger.Resources) { // the worker asks this between the two
				if !admitted {
					admitted = true
					s.planner.Exclusively(func() { test.admit(t, s) })
				}
				return none
			}
			s.reconcile(t, test.target)
			require.True(t, admitted)
			held := s.amounts(t, "r")["a1"]
			require.Zero(t, held.MilliCPU, "the room is the pod's")
		})
	}
}

// TestACycleGivesUpSlotsForALostZone: where it does, the node may have slots again, although it has no more room than before.
func TestACycleGivesUpSlotsForALostZone(t *testing.T) {
	s := newScene(1)
	s.ledger.AddNode(makeNode("a1", "a", "6"))
	s.ledger.AddNode(makeNode("a2", "a", "2"))
	d := target("r", 0, Zone{"a", 2}, Zone{"b", 3})
	d.PerNode = 2
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 2, "a2": 2}, s.slots(t, "r"), "of zone b, too")

	s.add(t, makePod("p", "a1", "1"))
	s.ledger.RemoveNode(makeNode("a2", "a", "2"))
	s.ledger.AddNode(makeNode("b1", "b", "2"))
	require.Equal(t, []types.UID{"r"}, s.collect())
	require.Equal(t, 2, s.slots(t, "r")["b1"])
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 2, "b1": 2}, s.slots(t, "r"))
}
