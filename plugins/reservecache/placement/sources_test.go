package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// TestARemovedNodeIsGoneForCyclesToo: the ledger has removed a node that cycles still see. Whatever changes on it, nothing is held there
// before the ledger has it again.
func TestARemovedNodeIsGoneForCyclesToo(t *testing.T) {
	for name, change := range map[string]func(s *scene, cache *ledger.Ledger){
		"a pod of the node comes to belong to a claim": func(s *scene, _ *ledger.Ledger) { s.planner.OwnersChanged() },
		"a pod of the node goes":                       func(_ *scene, cache *ledger.Ledger) { cache.RemovePod("p") },
	} {
		t.Run(name, func(t *testing.T) {
			s, cache := newScene(1), ledger.New(ledger.DefaultOptions())
			pod := owned(makePod("p", "a1", "1"), "nobody")
			for _, l := range []*ledger.Ledger{s.ledger, cache} {
				l.AddNode(makeNode("a1", "a", "1"))
				l.AddNode(makeNode("a2", "a", "1"))
				_, err := l.AddPod(pod)
				require.NoError(t, err)
			}
			seen := ledger.NewSnapshot()
			cycle := func() View {
				cache.UpdateSnapshot(seen)
				return snapshotView{seen}
			}
			s.reconcile(t, target("r", 0, Zone{"a", 3}))
			s.planner.Collect(cycle())
			s.ledger.RemoveNode(makeNode("a1", "a", "1"))
			s.reconcile(t)

			pod.Labels["claim"] = "r"
			change(s, cache)
			for range 2 {
				require.Empty(t, s.planner.Collect(cycle()).Changed)
				s.reconcile(t)
				require.Equal(t, map[string]int{"a2": 1}, s.slots(t, "r"))
			}

			s.end("p")
			cache.RemovePod("p")
			s.ledger.AddNode(makeNode("a1", "a", "1"))
			s.reconcile(t)
			s.planner.Collect(cycle())
			require.Equal(t, map[string]int{"a1": 1, "a2": 1}, s.slots(t, "r"))
			require.NotNil(t, s.planner.cycleNodes.present("a1"), "it is back for cycles")
		})
	}
}

// TestWhatIsLostWithANodeHadNoLackOfRoom: a node is too full as far as an old state of it says, and then it is removed.
func TestWhatIsLostWithANodeHadNoLackOfRoom(t *testing.T) {
	s := cluster(1, "a")
	s.reconcile(t, target("r", 0, Zone{"a", 4}))
	s.ledger.AddNode(makeNode("a1", "a", "2"))
	result := s.planner.Reconcile(s.live, func(string) bool { return true })
	require.Empty(t, result.GivenUp, "the node is known to have changed since")
	s.ledger.RemoveNode(makeNode("a1", "a", "2"))
	result = s.planner.Reconcile(s.live, nil)
	require.Empty(t, result.GivenUp)
	require.Empty(t, s.slots(t, "r"))
	require.Empty(t, s.planner.tooFull)
}

// TestNothingStaysOnANodeThatOnlyCyclesSawReady: the ledger hears first that a node is not ready, and a cycle that has not heard yet places
// a slot there again.
func TestNothingStaysOnANodeThatOnlyCyclesSawReady(t *testing.T) {
	s, cache := newScene(1), ledger.New(ledger.DefaultOptions())
	for _, l := range []*ledger.Ledger{s.ledger, cache} {
		l.AddNode(makeNode("b1", "b", "1"))
		l.AddNode(makeNode("b2", "b", "1"))
	}
	seen := ledger.NewSnapshot()
	cycle := func() View {
		cache.UpdateSnapshot(seen)
		return snapshotView{seen}
	}
	s.reconcile(t, target("r", 0, Zone{"b", 4}))
	s.ledger.AddNode(notReady(makeNode("b1", "b", "1")))
	s.reconcile(t)
	require.Equal(t, map[string]int{"b2": 1}, s.slots(t, "r"))
	s.planner.Collect(cycle())
	cache.AddNode(notReady(makeNode("b1", "b", "1")))
	s.planner.Collect(cycle())
	s.reconcile(t)
	require.Equal(t, map[string]int{"b2": 1}, s.slots(t, "r"))
}

// TestANodeThatIsRegisteredAgainIsNew: a cycle that sees it before the ledger does takes its room.
func TestANodeThatIsRegisteredAgainIsNew(t *testing.T) {
	s := newScene(1)
	first, second := makeNode("a1", "a", "1"), makeNode("a1", "a", "1")
	second.UID = "another"
	s.ledger.AddNode(makeNode("b1", "b", "1"))
	s.ledger.AddNode(first)
	s.reconcile(t, target("r", 0, Zone{"a", 1}, Zone{"b", 2}))
	s.collect()
	s.ledger.RemoveNode(first)
	s.reconcile(t)
	require.Equal(t, map[string]int{"b1": 1}, s.slots(t, "r"))
	s.ledger.AddNode(second)
	require.Equal(t, []types.UID{"r"}, s.collect())
	require.Equal(t, map[string]int{"a1": 1, "b1": 1}, s.slots(t, "r"))
}

// TestRoomThatGrewBesideAHoldIsFreed: a cycle hears of both at once, and the room beside them is as before.
func TestRoomThatGrewBesideAHoldIsFreed(t *testing.T) {
	s := newScene(1)
	s.ledger.AddNode(makeNode("a1", "a", "3"))
	s.reconcile(t, targetOn("r", 0, map[string]ledger.Resources{"none": cpus(1, 1)}))
	s.collect()
	s.reconcile(t, targetOn("r", 0, map[string]ledger.Resources{"none": cpus(1, 1), "a1": cpus(6, 1)}))
	require.Equal(t, map[string]ledger.Resources{"a1": cpus(3, 1)}, s.amounts(t, "r"))
	s.ledger.AddNode(makeNode("a1", "a", "6"))
	require.Equal(t, []types.UID{"r"}, s.collect())
	require.Equal(t, map[string]ledger.Resources{"a1": cpus(6, 1)}, s.amounts(t, "r"))
}
