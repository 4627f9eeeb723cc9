package placement

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

type amountsOf = map[string]ledger.Resources

// requireAmounts compares what is held.
func (s *scene) requireAmounts(t *testing.T, name string, want amountsOf) {
	t.Helper()
	require.Equal(t, want, s.amounts(t, name))
}

// TestAmountsCollectFreedRoom: what has no room yet is taken as room becomes free on that node, before any pod, each resource by
// itself. Room of other nodes is left alone.
func TestAmountsCollectFreedRoom(t *testing.T) {
	s := cluster(2, "a")
	s.add(t, makePod("p", "a1", "2"), makePod("q", "a1", "1"), makePod("r", "a2", "1"))
	s.reconcile(t, targetOn("d", 0, amountsOf{"a1": cpus(3, 2), "a2": cpus(3, 1)}))
	s.requireAmounts(t, "d", amountsOf{"a1": cpus(1, 2), "a2": cpus(3, 1)})
	r := s.report(t, "d")
	require.Equal(t, Sums{Desired: cpus(6, 3), Held: cpus(4, 3), Missing: cpus(2, 0)}, r.Sums)
	require.Equal(t, "zone a: 2 cpu of 6 cpu, 3 places for pods: 1 node short of cpu", r.Shortfalls())
	require.Equal(t, []types.UID{"d"}, s.planner.Unfilled())
	require.Len(t, r.Zones[0].Nodes, 1, "nodes that are as desired are left out")

	s.end("r")
	require.Empty(t, s.collect())
	s.end("q")
	require.Equal(t, []types.UID{"d"}, s.collect())
	s.requireAmounts(t, "d", amountsOf{"a1": cpus(2, 2), "a2": cpus(3, 1)})
	_, fits := s.schedule(t, s.view(), "a1", makePod("stranger", "", "1"), "")
	require.False(t, fits)
	s.end("p")
	s.collect()
	s.requireAmounts(t, "d", amountsOf{"a1": cpus(3, 2), "a2": cpus(3, 1)})
	require.Empty(t, s.planner.Unfilled())
	require.Empty(t, s.reconcile(t))
	require.Zero(t, s.report(t, "d").MissingOn)
}

// TestAmountsIncludeTheirOwners: what the owners on a node ask for is part of its amount, whether they came before it or fit beside it. The
// amounts may change meanwhile: what owners use of them is theirs, whatever is asked for.
func TestAmountsIncludeTheirOwners(t *testing.T) {
	s := cluster(1, "a")
	come := func(name, cpu string) (uses bool) {
		t.Helper()
		uses, fits := s.schedule(t, s.view(), "a1", makePod(name, "", cpu), "d")
		require.True(t, fits)
		s.add(t, owned(makePod(name, "a1", cpu), "d"))
		return uses
	}
	fits := func(cpu string) bool {
		_, fits := s.schedule(t, s.view(), "a1", makePod("stranger"+cpu, "", cpu), "")
		return fits
	}
	s.add(t, owned(makePod("early", "a1", "1"), "d"))
	s.reconcile(t, targetOn("d", 0, amountsOf{"a1": cpus(3, 3)}))
	require.Equal(t, Sums{Desired: cpus(3, 3), Held: cpus(3, 3), Used: cpus(1, 1)}, s.report(t, "d").Sums)
	require.False(t, fits("1500m"), "one CPU is free")
	require.False(t, come("small", "500m"))
	require.True(t, come("large", "1500m"))
	require.Empty(t, s.reconcile(t), "what is used is not replaced")
	require.True(t, fits("1"))
	require.False(t, fits("100m"))
	require.Equal(t, cpus(3, 3), s.report(t, "d").Used)

	for _, amount := range []int64{1, 0, 3, 2} {
		amounts := amountsOf{"a1": cpus(amount, 3)}
		if amount == 0 {
			amounts = amountsOf{"other": cpus(1, 1)}
		}
		s.reconcile(t, targetOn("d", 0, amounts))
		held := s.amounts(t, "d")
		require.Equal(t, 1000*amount, held["a1"].MilliCPU)
	}
	s.end("large")
	s.reconcile(t)
	s.requireAmounts(t, "d", amountsOf{"a1": cpus(2, 3)})
	r := s.report(t, "d")
	require.Equal(t, Sums{Desired: cpus(2, 3), Held: cpus(2, 3), Used: ledger.Resources{MilliCPU: 1500, Pods: 2}}, r.Sums)
	require.Empty(t, r.Zones[0].Nodes, "what is held is what is desired")
	require.False(t, fits("1500m"), "half a CPU is held")
}

// TestAmountsOutliveTheirNode: what is wanted of a node that is gone, or not ready, is missing until it is back, its owners among it.
func TestAmountsOutliveTheirNode(t *testing.T) {
	for name, lose := range map[string]func(*scene){
		"gone":      func(s *scene) { s.ledger.RemoveNode(makeNode("a1", "a", "4")) },
		"not ready": func(s *scene) { s.ledger.UpdateNode(notReady(makeNode("a1", "a", "4"))) },
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(2, "a")
			s.add(t, makePod("p", "a1", "2"))
			s.reconcile(t, targetOn("d", 0, amountsOf{"a1": cpus(2, 2), "a2": cpus(1, 1)}))
			s.consume(t, "o", "a1", "1", "d")
			lose(s)
			s.reconcile(t)
			r := s.report(t, "d")
			require.Equal(t, []string{"a1"}, r.Away)
			require.Equal(t, cpus(2, 2), r.Missing)
			require.Equal(t, cpus(1, 1), r.Held)
			s.requireAmounts(t, "d", amountsOf{"a2": cpus(1, 1)})
			s.ledger.UpdateNode(makeNode("a1", "a", "4"))
			s.reconcile(t)
			s.requireAmounts(t, "d", amountsOf{"a1": cpus(2, 2), "a2": cpus(1, 1)})
			require.Zero(t, s.report(t, "d").MissingOn)
			require.Equal(t, cpus(1, 1), s.report(t, "d").Used)
		})
	}
}

// TestAmountsBesideOthers: of several claims the oldest comes first, whatever their form. A node that becomes too full gives up what is
// youngest, and a nominated pod keeps its room.
func TestAmountsBesideOthers(t *testing.T) {
	s := cluster(1, "a")
	s.add(t, makePod("p", "a1", "3"))
	s.reconcile(t, targetOn("second", 2, amountsOf{"a1": cpus(2, 1)}), target("first", 1, Zone{"a", 2}), targetOn("third", 3, amountsOf{"a1": cpus(4, 1)}))
	require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "first"))
	s.end("p")
	s.collect()
	require.Equal(t, map[string]int{"a1": 2}, s.slots(t, "first"))
	s.requireAmounts(t, "second", amountsOf{"a1": cpus(2, 1)})
	s.requireAmounts(t, "third", amountsOf{"a1": cpus(0, 1)})

	s.add(t, makePod("by-hand", "a1", "1"))
	result := s.planner.Reconcile(s.live, nil)
	require.Equal(t, []GivenUp{{Claim: "second", Node: "a1", Amount: cpus(1, 0)}}, result.GivenUp)
	s.requireAmounts(t, "second", amountsOf{"a1": cpus(1, 1)})
	require.Equal(t, []string{"a1"}, s.report(t, "second").Full)

	s.nominated["a1"] = cpus(1, 1)
	s.end("by-hand")
	s.collect()
	s.reconcile(t)
	s.requireAmounts(t, "second", amountsOf{"a1": cpus(1, 1)})
	delete(s.nominated, "a1")
	s.reconcile(t)
	s.requireAmounts(t, "second", amountsOf{"a1": cpus(2, 1)})
}

// TestAmountsWithinTheLimit: of what a zone offers, no more is held than the limit says. What else is wanted follows when there is less held.
func TestAmountsWithinTheLimit(t *testing.T) {
	s := newScene(0.5)
	for _, name := range []string{"a1", "a2"} {
		s.ledger.AddNode(makeNode(name, "a", "4"))
	}
	s.reconcile(t, target("slots", 0, Zone{"a", 1}), targetOn("d", 1, amountsOf{"a1": cpus(2, 1), "a2": cpus(3, 1)}))
	held := s.amounts(t, "d")
	require.Equal(t, int64(3000), held["a1"].MilliCPU+held["a2"].MilliCPU)
	require.Equal(t, []string{"a"}, s.report(t, "d").Capped)
	s.planner.Remove("slots")
	s.reconcile(t)
	held = s.amounts(t, "d")
	require.Equal(t, int64(4000), held["a1"].MilliCPU+held["a2"].MilliCPU)
	s.reconcile(t, targetOn("d", 1, amountsOf{"a1": cpus(2, 1), "a2": cpus(2, 1)}))
	require.Empty(t, s.report(t, "d").Capped)
}

// TestAmountsOfManyNodes: they are placed in several drafts, and each resource that a node has is held.
func TestAmountsOfManyNodes(t *testing.T) {
	s := newScene(1)
	amounts := amountsOf{}
	for i := range 3 * nodesPerDraft {
		n := makeNode(fmt.Sprintf("n%d", i), string(rune('a'+i%3)), "4")
		n.Status.Allocatable["example.com/gpu"] = resource.MustParse("2")
		s.ledger.AddNode(n)
		amounts[n.Name] = ledger.Resources{MilliCPU: int64(1000 + i), Memory: 1 << 20, Pods: 2, Scalar: map[v1.ResourceName]int64{"example.com/gpu": 1}}
	}
	s.reconcile(t, targetOn("d", 0, amounts))
	s.requireAmounts(t, "d", amounts)
	r := s.report(t, "d")
	require.True(t, r.Missing.IsZero())
	require.Equal(t, int64(6*nodesPerDraft), r.Held.Pods)
	require.Empty(t, r.Zones[0].Nodes)
	require.Equal(t, int64(3*nodesPerDraft), r.Held.Scalar["example.com/gpu"])
}

func TestWords(t *testing.T) {
	for want, amount := range map[string]ledger.Resources{
		"":                  {},
		"1 place for a pod": {Pods: 1},
		"2500m cpu, 4Gi memory, 3 places for pods": {MilliCPU: 2500, Memory: 4 << 30, Pods: 3},
		"2 example.com/gpu":                        {Scalar: map[v1.ResourceName]int64{"example.com/gpu": 2}},
	} {
		require.Equal(t, want, Words(&amount))
	}
}
