package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// TestOneScoutAtATime: the member that makes the plan is not overtaken by another one, which would be refused if there is none.
func TestOneScoutAtATime(t *testing.T) {
	g, ids := plannedGang(t, 3)
	woken := func(now time.Time) []types.UID { return g.Act(now).Activate }
	first := woken(after(0))
	require.Len(t, first, 1)
	require.Len(t, woken(after(10)), 1, "it has not been seen in a cycle")
	g.Enter(first[0], after(11))
	where, _ := g.Place(first[0], after(11))
	require.Equal(t, gang.PlacePlan, where)
	require.True(t, g.Scouting())
	require.Empty(t, woken(after(300)), "a large plan takes its time")
	require.Len(t, woken(after(2000)), 1, "nothing has come of it")

	slots := map[types.UID]gang.Slot{}
	for _, uid := range ids[:2] {
		slots[uid] = gang.Slot{Node: "n"}
	}
	g.Enter(first[0], after(2001))
	g.Place(first[0], after(2001))
	require.False(t, g.SetPlan(slots, after(2002)), "the gang has grown meanwhile")
	require.Len(t, woken(after(2002)), 1)

	slots[ids[2]] = gang.Slot{Node: "n"}
	require.True(t, g.SetPlan(slots, after(2003)))
	require.False(t, g.Scouting())
	require.Len(t, woken(after(2003)), 3)
}

// TestAnotherScout: a member that is not seen in a cycle may be kept by somebody else.
func TestAnotherScout(t *testing.T) {
	g, _ := plannedGang(t, 3)
	seen := map[types.UID]int{}
	for ms := range 2000 {
		for _, uid := range g.Act(after(ms)).Activate {
			seen[uid]++
		}
	}
	require.Len(t, seen, 3)
}

// plannedGang returns a gang that needs a plan, of so many members.
func plannedGang(t *testing.T, members int) (*gang.Gang, []types.UID) {
	t.Helper()
	planned := config
	planned.Planned = true
	g := gang.New(planned)
	g.SetGroup(gang.Spec{UID: "g", MinMember: members}, start)
	ids := uids(members)
	for _, id := range ids {
		g.SetPod(id, gang.Pod{}, start)
	}
	require.True(t, g.Scouting())
	return g, ids
}
