package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/permitgate/gang"
)

// partlyBound returns a gang that needs three, of which one is bound and two wait to be scheduled.
func partlyBound(t *testing.T) (*gang.Gang, []types.UID) {
	t.Helper()
	c := config
	c.RecoveryTimeout = time.Minute
	g := gang.New(c)
	g.SetGroup(gang.Spec{UID: "g", MinMember: 3}, start)
	ids := uids(3)
	for i, id := range ids {
		g.SetPod(id, gang.Pod{Bound: i == 0}, start)
	}
	return g, ids
}

// stranded reports whether a gang is bound in part, when it has been looked at, although a quorum lives.
func stranded(g *gang.Gang, now time.Time) bool {
	g.Act(now)
	return g.Phase() != gang.Pending && g.PartlyBound(now)
}

// TestGangThatIsNotStranded: nothing is evicted that could not become whole, or is about to.
func TestGangThatIsNotStranded(t *testing.T) {
	for name, f := range map[string]func(g *gang.Gang, ids []types.UID){
		"it has become whole": func(g *gang.Gang, ids []types.UID) {
			g.SetPod(ids[1], gang.Pod{Bound: true}, after(30_000))
			g.SetPod(ids[2], gang.Pod{Bound: true}, after(30_000))
		},
		"the PodGroup is gone":        func(g *gang.Gang, _ []types.UID) { g.DeleteGroup(after(30_000)) },
		"the quorum has been lowered": func(g *gang.Gang, _ []types.UID) { g.SetGroup(gang.Spec{UID: "g", MinMember: 1}, after(30_000)) },
		"the rest is on its way": func(g *gang.Gang, ids []types.UID) {
			require.True(t, g.Admit(after(30_000)))
			g.Act(after(30_000))
			g.Enter(ids[1], after(30_000))
			require.True(t, g.Gather(gang.Round{Members: ids[1:], First: ids[1:]}, after(30_000)))
			g.Permit(ids[1], "node", after(30_000))
			g.Permit(ids[2], "node", after(30_000))
			g.Release(ids[1:], after(30_000))
			require.Equal(t, gang.Releasing, g.Phase())
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, ids := partlyBound(t)
			f(g, ids)
			require.False(t, stranded(g, after(70_000)))
			require.NotEqual(t, gang.Backoff, g.Phase())
		})
	}
}

// TestFailedBindKeepsItsNode until the member is bound or the gang is rolled back.
func TestFailedBindKeepsItsNode(t *testing.T) {
	g, ids := newGang(3, 3)
	wait(t, g, after(10), ids...)
	require.Len(t, g.Release(ids, after(10)), 3)
	passBarrier(t, g, after(15), ids...)
	g.Bound(ids[0], after(20))
	g.Unreserved(ids[1], after(20))
	require.True(t, g.Act(after(20)).BindFailed)
	require.False(t, g.Act(after(21)).BindFailed)
	require.Equal(t, "node", g.KeptNode(ids[1]))
	require.False(t, g.SentBack(ids[1]), "its nomination is not stale")
	g.Bound(ids[2], after(30))
	require.Equal(t, "node", g.KeptNode(ids[1]))
	g.Enter(ids[1], after(1000))
	g.Permit(ids[1], "node", after(1000))
	require.Empty(t, g.KeptNode(ids[1]), "it has the node now")
	g.Arrive(ids[1], after(1000))
	g.Commit(ids[1:2], nil, after(1000))
	g.Bound(ids[1], after(1010))
	require.Equal(t, gang.Whole, g.Phase())
	require.Empty(t, g.KeptNode(ids[1]))
}

// TestNewMembersOfAPartlyBoundGang have a round of their own before the gang counts as stranded: it lacked members
// until they came, and room it may not lack.
func TestNewMembersOfAPartlyBoundGang(t *testing.T) {
	c := config
	c.RecoveryTimeout = time.Minute
	g := gang.New(c)
	g.SetGroup(gang.Spec{UID: "g", MinMember: 2, Timeout: 20 * time.Second}, start)
	g.SetPod("bound", gang.Pod{Bound: true}, start)
	require.Equal(t, after(60_000), g.Act(after(1)).Next)
	g.SetPod("late", gang.Pod{}, after(90_000))
	require.False(t, stranded(g, after(90_000)))
	g.Enter("late", after(90_001)) // so that nothing else is to be done
	require.Equal(t, after(110_000), g.Act(after(90_001)).Next)
	require.False(t, stranded(g, after(109_999)))
	require.True(t, stranded(g, after(110_000)))
}

// TestGangThatLacksMembersStaysBoundInPart: a part of the gang is bound, and the rest does not exist.
func TestGangThatLacksMembersStaysBoundInPart(t *testing.T) {
	g, ids := partlyBound(t)
	g.DeletePod(ids[2], after(30_000))
	require.Equal(t, after(60_000), g.Act(after(30_000)).Next)
	require.False(t, g.PartlyBound(after(59_999)))
	require.False(t, stranded(g, after(60_000)), "an eviction would not make it whole")
	require.True(t, g.PartlyBound(after(60_000)))

	g.SetPod("new", gang.Pod{}, after(61_000))
	require.False(t, g.PartlyBound(after(61_000)))
	g.DeletePod("new", after(62_000))
	require.True(t, g.PartlyBound(after(62_000)))
	g.DeletePod(ids[0], after(63_000))
	require.False(t, g.PartlyBound(after(200_000)), "nothing is bound")
}

// TestFinishedMembersAreNotBoundInPart: what has succeeded is not there to be waited for.
func TestFinishedMembersAreNotBoundInPart(t *testing.T) {
	g, ids := partlyBound(t)
	g.SetSucceeded(sets.New(ids[0]), after(1_000))
	g.DeletePod(ids[1], after(2_000))
	require.False(t, g.PartlyBound(after(200_000)))
}

// TestReplacementsOneByOne: in a gang that runs, if its owner says so, a member that replaces another depends on none.
// A gang that has lost all of its members starts over.
func TestReplacementsOneByOne(t *testing.T) {
	for name, oneByOne := range map[string]bool{"one by one": true, "together": false} {
		t.Run(name, func(t *testing.T) {
			g := gang.New(config)
			g.SetGroup(gang.Spec{UID: "g", MinMember: 3, OneByOne: oneByOne}, start)
			ids := uids(8)
			for _, id := range ids[:3] {
				g.SetPod(id, gang.Pod{Bound: true}, start)
			}
			require.Equal(t, gang.Whole, g.Phase())
			g.DeletePod(ids[0], after(1))
			g.DeletePod(ids[1], after(1))
			g.SetPod(ids[3], gang.Pod{}, after(2))
			if !oneByOne {
				requireRefuses(t, g, ids[3], after(3), gang.ReasonTooFew, "needs 3 members, 2 exist")
				g.SetPod(ids[4], gang.Pod{}, after(4))
				require.Equal(t, gang.Queued, g.Phase())
				return
			}
			requireAdmits(t, g, ids[3], after(3))
			enter(t, g, after(3), ids[3])
			waits, reason, _ := g.Permit(ids[3], "node", after(3))
			require.False(t, waits)
			require.Equal(t, gang.ReasonNone, reason)
			require.Equal(t, ids[3:4], g.Arrive(ids[3], after(4)))
			g.Commit(ids[3:4], nil, after(4))
			g.Unreserved(ids[3], after(5)) // its bind has failed
			require.Equal(t, gang.Whole, g.Phase())
			requireAdmits(t, g, ids[3], after(6))

			g.DeletePod(ids[2], after(7))
			requireRefuses(t, g, ids[3], after(7), gang.ReasonTooFew, "needs 3 members, 1 exist")
		})
	}
}

// TestFirstMembersGoTogether, whatever becomes of replacements.
func TestFirstMembersGoTogether(t *testing.T) {
	g := gang.New(config)
	g.SetGroup(gang.Spec{UID: "g", MinMember: 3, OneByOne: true}, start)
	ids := uids(3)
	for _, id := range ids {
		g.SetPod(id, gang.Pod{}, start)
	}
	gather(t, g, start)
	wait(t, g, after(1), ids...)
	require.ElementsMatch(t, ids, g.Release(ids, after(2)))
	require.Empty(t, g.Arrive(ids[0], after(3)))
	require.Empty(t, g.Arrive(ids[1], after(3)))
	require.Len(t, g.Arrive(ids[2], after(3)), 3)
	g.Commit(ids, nil, after(3))
	g.Bound(ids[0], after(4))
	require.Equal(t, gang.Releasing, g.Phase())
	g.Bound(ids[1], after(5))
	g.Bound(ids[2], after(6))
	require.Equal(t, gang.Whole, g.Phase())
	require.True(t, g.Act(after(6)).BecameWhole)
}
