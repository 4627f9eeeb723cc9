package placement

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// TestTheOldestTakesWhatIsFreed, and a younger one what the older ones can not use.
func TestTheOldestTakesWhatIsFreed(t *testing.T) {
	s := cluster(1, "a", "b")
	for _, node := range []string{"a1", "b1"} {
		for _, name := range []string{"1", "2", "3", "4"} {
			s.add(t, makePod(node+name, node, "1"))
		}
	}
	younger, older, large := target("younger", 1, Zone{"a", 1}, Zone{"b", 1}), target("older", 0, Zone{"a", 1}), target("large", -1, Zone{"a", 1})
	large.Claim.Slot.MilliCPU = 2000
	s.reconcile(t, younger, older, large)
	s.end("a11")
	require.Equal(t, []types.UID{"older"}, s.collect())
	s.end("b11")
	require.Equal(t, []types.UID{"younger"}, s.collect())
	s.end("a12")
	require.Equal(t, []types.UID{"younger"}, s.collect(), "the large one can not use a single CPU")
	s.end("a13")
	s.end("a14")
	require.Equal(t, []types.UID{"large"}, s.collect())
}

// TestTooLittleRoomIsPassed: room that grows in steps is taken once it is enough, and what was too little is not looked at again.
func TestTooLittleRoomIsPassed(t *testing.T) {
	s := cluster(1, "a")
	for i := range 100 {
		s.ledger.AddNode(makeNode(fmt.Sprintf("b%d", i), "b", "2"))
		s.add(t, makePod(fmt.Sprintf("b%d", i), fmt.Sprintf("b%d", i), "1"))
	}
	for i := range 4 {
		s.add(t, makePod(fmt.Sprintf("a%d", i), "a1", "1"))
	}
	large := target("large", 0, Zone{"a", 1}, Zone{"b", 1})
	large.Claim.Slot.MilliCPU = 3000
	s.reconcile(t, large)
	s.collect() // the cycle's view is new
	s.reconcile(t)
	s.end("a0")
	require.Empty(t, s.collect())
	s.end("a1")
	require.Empty(t, s.collect(), "two of three CPUs")
	for i := range 100 {
		s.end(fmt.Sprintf("b%d", i))
		require.Empty(t, s.collect(), "the nodes of b are too small")
	}
	s.planner.seekers.passTooSmall(s.planner.cycleNodes)
	search := s.planner.claims["large"].searchOf(s.planner.cycleNodes)
	require.Equal(t, s.planner.cycleNodes.freeings, search.lookedUpTo("a"))
	require.Equal(t, s.planner.cycleNodes.freeings, search.lookedUpTo("b"))
	s.end("a2")
	require.Equal(t, []types.UID{"large"}, s.collect())
	require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "large"))
}

func TestSpan(t *testing.T) {
	w := &search{looked: map[string]uint64{}}
	w.looked["a"], w.looked["b"], w.looked["c"] = 5, 8, 30
	w.passed.extendTo(7, 9)
	w.passed.extendTo(9, 20)
	require.Equal(t, span{7, 20}, w.passed)
	require.Equal(t, []uint64{0, 5, 20, 30}, []uint64{w.lookedUpTo("new"), w.lookedUpTo("a"), w.lookedUpTo("b"), w.lookedUpTo("c")})
	w.passed.extendTo(21, 25)
	require.Equal(t, span{21, 25}, w.passed, "between the two are points that were not passed")
}

// TestRoomOfAFailedDraftIsOffered: what an older claim cannot have beside nominated pods, a younger one of smaller slots can.
func TestRoomOfAFailedDraftIsOffered(t *testing.T) {
	s := cluster(1, "a")
	s.add(t, makePod("p", "a1", "1"), makePod("q", "a1", "3"))
	older, younger := target("older", 0, Zone{"a", 1}), target("younger", 1, Zone{"a", 1})
	younger.Claim.Slot.MilliCPU = 500
	s.reconcile(t, older, younger)
	s.nominated["a1"] = ledger.Resources{MilliCPU: 500}
	s.end("p")
	s.reconcile(t)
	require.Empty(t, s.slots(t, "older"))
	require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "younger"))
}

// TestATakenSlotHasOneSubstitute: a slot that a pod took may be replaced in another zone, once. What is missing besides stays where it
// is wanted.
func TestATakenSlotHasOneSubstitute(t *testing.T) {
	s := cluster(1, "a", "b")
	s.add(t, makePod("other", "a1", "2"))
	s.reconcile(t, target("x", 0, Zone{Name: "a", Slots: 3}, Zone{Name: "b", Slots: 1}))
	require.Equal(t, map[string]int{"a1": 2, "b1": 1}, s.slots(t, "x"), "one slot has no room in zone a")

	uses, fits := s.schedule(t, s.view(), "a1", makePod("owner", "", "1"), "x")
	require.True(t, uses && fits)
	for range 3 {
		s.reconcile(t)
		require.Equal(t, map[string]int{"a1": 1, "b1": 2}, s.slots(t, "x"))
	}
}

// TestRoomThatWasTooSmallIsLookedAtByOneThatLacksASlotSince: what was too small for those that lacked slots is not for others.
func TestRoomThatWasTooSmallIsLookedAtByOneThatLacksASlotSince(t *testing.T) {
	s := cluster(2, "a")
	for _, node := range []string{"a1", "a2"} {
		for _, name := range []string{"1", "2", "3", "4"} {
			s.add(t, makePod(node+name, node, "1"))
		}
	}
	small, large := target("small", 0, Zone{"a", 1}), target("large", 1, Zone{"a", 1})
	large.Claim.Slot.MilliCPU = 3000
	other := target("other", 2, Zone{"a", 1})
	other.Claim.Slot = ledger.Resources{Memory: 1 << 50} // with it, the sizes of all slots have nothing in common
	s.reconcile(t, small, large, other)
	s.collect()
	s.planner.Remove("other")
	s.end("a11")
	require.Equal(t, []types.UID{"small"}, s.reconcile(t), "between two cycles")
	s.end("a21")
	require.Empty(t, s.collect(), "one CPU of three")
	require.NotEqual(t, span{}, s.planner.cycleNodes.tooSmall)

	s.consume(t, "owner", "a1", "1", "small")
	require.Equal(t, []types.UID{"small"}, s.collect())
	require.Equal(t, map[string]int{"a2": 1}, s.slots(t, "small"))
}
