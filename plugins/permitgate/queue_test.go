package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// TestTurns: one gang of each priority at a time, the oldest first; one whose scout does not come holds up the others for a
// moment only.
func TestTurns(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	after := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	key := func(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
	of := func(name string, priority int32, age int) podgroup.Rank {
		return podgroup.Rank{Priority: priority, Created: after(-age), Key: key(name)}
	}
	turns := newGangQueue()
	turns.update(of("young", 0, 1), false, false)
	turns.update(of("old", 0, 100), false, false)
	turns.update(of("urgent", 9, 0), false, false)
	next := func(ms int, want ...string) {
		t.Helper()
		keys, _ := turns.next(after(ms))
		var names []string
		for _, k := range keys {
			names = append(names, k.Name)
		}
		require.ElementsMatch(t, want, names)
	}
	next(0, "old", "urgent")
	_, again := turns.next(after(1))
	require.Equal(t, after(250), again)
	next(1)
	turns.update(of("old", 0, 100), false, true) // it is still queued
	next(2)
	turns.remove(key("old")) // it was proposed
	next(3, "young")
	turns.update(of("young", 0, 1), true, false) // it was refused, and changed at once
	next(4, "young")
	turns.remove(key("young"))
	turns.remove(key("urgent"))

	// A scout that does not come.
	turns.update(of("stuck", 0, 100), false, false)
	turns.update(of("young", 0, 1), false, false)
	next(10, "stuck")
	next(259)
	next(260, "young")
	turns.remove(key("stuck"))
	turns.remove(key("young"))
	require.Empty(t, turns.known)
	require.Empty(t, turns.lines)
}

// TestTurnsOfGangsThatWereRefused: looking again in failedSearches costs a tenth of the time, and gangs that are new do not wait for that.
func TestTurnsOfGangsThatWereRefused(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	turns := newGangQueue()
	turns.refusedAgain(0, 10*time.Millisecond, start)
	turns.update(podgroup.Rank{Key: types.NamespacedName{Name: "a"}}, true, false)
	turns.update(podgroup.Rank{Key: types.NamespacedName{Name: "b"}}, false, false)
	keys, _ := turns.next(start)
	require.Equal(t, []types.NamespacedName{{Name: "b"}}, keys)
	turns.remove(types.NamespacedName{Name: "b"})
	keys, again := turns.next(start.Add(time.Millisecond))
	require.Empty(t, keys)
	require.Equal(t, start.Add(90*time.Millisecond), again)
	keys, _ = turns.next(start.Add(90 * time.Millisecond))
	require.Equal(t, []types.NamespacedName{{Name: "a"}}, keys)
}

// TestRefusedGangsDoNotDelayOtherPriorities: what it costs to look at a gang again is its priority's own.
func TestRefusedGangsDoNotDelayOtherPriorities(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	turns := newGangQueue()
	turns.update(podgroup.Rank{Priority: 0, Key: types.NamespacedName{Name: "low"}}, true, false)
	turns.update(podgroup.Rank{Priority: 1000, Key: types.NamespacedName{Name: "high"}}, true, false)
	turns.refusedAgain(0, 500*time.Millisecond, start)
	keys, again := turns.next(start)
	require.Equal(t, []types.NamespacedName{{Name: "high"}}, keys)
	require.False(t, again.After(start.Add(2*9*500*time.Millisecond)))
	turns.remove(types.NamespacedName{Name: "low"})
	turns.remove(types.NamespacedName{Name: "high"})
	turns.next(start.Add(time.Minute))
	require.Empty(t, turns.lines)
}
