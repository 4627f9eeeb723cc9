package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// TestFreedRoomIsTheOldestsBeforeAYoungerOneIsReconciled, in one pass.
func TestFreedRoomIsTheOldestsBeforeAYoungerOneIsReconciled(t *testing.T) {
	t.Run("a pod has gone", func(t *testing.T) {
		s := cluster(1, "a")
		s.add(t, makePod("p", "a1", "1"), makePod("q", "a1", "3"))
		s.reconcile(t, target("older", 0, Zone{"a", 1}))
		s.end("p")
		s.reconcile(t, target("younger", 1, Zone{"a", 1}))
		require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "older"))
		require.Empty(t, s.slots(t, "younger"))
	})
	t.Run("another claim gives it up", func(t *testing.T) {
		s := cluster(1, "a")
		s.add(t, makePod("q", "a1", "3"))
		s.reconcile(t, target("holder", 1, Zone{"a", 1}))
		s.reconcile(t, target("older", 0, Zone{"a", 1}))
		require.Empty(t, s.slots(t, "older"), "the slots that are held stay")
		s.planner.Set(target("holder", 1, Zone{"a", 0}))
		s.reconcile(t, target("younger", 2, Zone{"a", 1}))
		require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "older"))
		require.Empty(t, s.slots(t, "younger"))
	})
}

// alwaysChanging is a view of a ledger in which one node changes whenever it has been read.
type alwaysChanging struct {
	liveView
	node string
}

func (v alwaysChanging) Outdated(i int) bool {
	return v.Node(i).Name == v.node || v.liveView.Outdated(i)
}

// TestADraftThatIsNotRecordedHoldsNobodyUp: pods come to the node of one claim all the time.
func TestADraftThatIsNotRecordedHoldsNobodyUp(t *testing.T) {
	s := cluster(1, "a", "b")
	s.planner.Set(target("older", 0, Zone{"a", 1}))
	s.planner.Set(target("younger", 1, Zone{"b", 1}))
	reads := 0
	result := s.planner.Reconcile(func() View {
		reads++
		return alwaysChanging{s.live().(liveView), "a1"} //nolint:forcetypeassert // it is one
	}, nil)
	require.True(t, result.More)
	require.Equal(t, []types.UID{"younger"}, result.Changed)
	require.LessOrEqual(t, reads, 1+tries)
	require.Equal(t, []types.UID{"older"}, s.reconcile(t))
}

// TestSlotsGrowBesideNominatedPods: a preemptor's victim is still there when the slots get another size.
func TestSlotsGrowBesideNominatedPods(t *testing.T) {
	s := newScene(1)
	s.ledger.AddNode(makeNode("a1", "a", "5"))
	s.ledger.AddNode(makeNode("b1", "b", "5"))
	s.add(t, makePod("victim", "a1", "2"))
	s.reconcile(t, target("r", 0, Zone{"a", 1}))
	s.nominated["a1"] = ledger.Resources{MilliCPU: 3000, Pods: 1}
	larger := target("r", 0, Zone{"a", 1})
	larger.Claim.Slot.MilliCPU = 2000
	s.planner.Set(larger)
	s.planner.Set(target("younger", 1, Zone{"b", 1}))
	result := s.planner.Reconcile(s.live, nil)
	require.False(t, result.More, "nothing more can be done")
	require.Empty(t, s.slots(t, "r"), "a slot of the new size has no room beside the nominated pod")
	require.Equal(t, map[string]int{"b1": 1}, s.slots(t, "younger"))

	s.end("victim")
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "r"))
}
