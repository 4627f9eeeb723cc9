package placement

import (
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// guarantee returns a target of a slot of two CPUs in zone a that includes the pods of its owners.
func guarantee(name string, age int) Target {
	d := target(name, age, Zone{"a", 1})
	d.Claim.Use, d.Claim.Slot.MilliCPU = holds.UseFirst, 2000
	return d
}

// TestSlotsFollowOwnersToFreedRoom, by whomever it was freed: the claim has all its slots, and seeks no room for more.
func TestSlotsFollowOwnersToFreedRoom(t *testing.T) {
	for name, tt := range map[string]struct{ occupy, free func(s *scene) }{
		"another claim is removed": {
			func(s *scene) { s.reconcile(t, target("other", 0, Zone{"a", 3})) },
			func(s *scene) { s.planner.Remove("other") },
		},
		"another claim gives it up": {
			func(s *scene) { s.reconcile(t, target("other", 0, Zone{"a", 3})) },
			func(s *scene) { s.planner.Set(target("other", 0, Zone{"a", 0})) },
		},
		"a younger claim gives it up": {
			func(s *scene) { s.reconcile(t, target("other", 2, Zone{"a", 3})) },
			func(s *scene) { s.planner.Set(target("other", 2, Zone{"a", 0})) },
		},
		"a pod has gone": {
			func(s *scene) { s.add(t, makePod("other", "a1", "3")) },
			func(s *scene) { s.end("other") },
		},
		"a nomination has ended": {
			func(s *scene) { s.nominated["a1"] = ledger.Resources{MilliCPU: 3000, Pods: 1} },
			func(s *scene) { delete(s.nominated, "a1") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(2, "a")
			s.add(t, owned(makePod("owner", "a1", "1"), "r"))
			tt.occupy(s)
			s.reconcile(t, guarantee("r", 1))
			require.Equal(t, map[string]int{"a2": 1}, s.slots(t, "r"))
			tt.free(s)
			s.reconcile(t)
			require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "r"))
		})
	}
}

// TestUsedSlotsKeepWhatTheirPodsLeave on a node that is too full: slots that can go elsewhere do so, of whatever priority and age they are.
func TestUsedSlotsKeepWhatTheirPodsLeave(t *testing.T) {
	s := cluster(2, "a")
	s.add(t, owned(makePod("owner", "a1", "1"), "used"))
	s.reconcile(t, guarantee("used", 1))
	require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "used"))
	s.reconcile(t, target("older", 0, Zone{"a", 1}))
	require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "older"))

	s.add(t, makePod("other", "a1", "2"))
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "used"))
	require.Equal(t, map[string]int{"a2": 1}, s.slots(t, "older"), "a1 has one CPU, which the owner leaves of its slot")
}
