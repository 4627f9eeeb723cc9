package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// TestOneScout: one member comes to a cycle and finds out for all of them; the others wait outside the queue.
func TestOneScout(t *testing.T) {
	g, ids := newGang(3, 3)
	require.Empty(t, g.Act(start).Activate)
	require.True(t, g.Admit(start))
	require.False(t, g.Admit(start), "it is admitted already")
	require.Equal(t, ids[:1], g.Act(start).Activate, "always the same")
	requireAdmits(t, g, ids[0], start)
	requireRefuses(t, g, ids[1], start, gang.ReasonQueued, "admitted")
	scout, _, _ := g.Enter(ids[0], after(1))
	require.True(t, scout)
	require.Empty(t, g.Act(after(900)).Activate, "the proposal takes its time")

	g.Refuse(gang.Rollback{Cause: gang.CauseNoRoom, Detail: "at most 2 of 3 fit"}, 0, 0, after(901))
	a := g.Act(after(901))
	require.Equal(t, gang.CauseNoRoom, a.Rollback.Cause)
	require.False(t, g.Admitted())
	requireRefuses(t, g, ids[0], after(901), gang.ReasonBackoff, "at most 2 of 3 fit")
}

// TestScoutWithoutAnAnswer: if a cycle ends before the proposal is made, another scout follows.
func TestScoutWithoutAnAnswer(t *testing.T) {
	g, ids := newGang(3, 3)
	require.True(t, g.Admit(start))
	g.Act(start)
	scout, _, _ := g.Enter(ids[0], after(1))
	require.True(t, scout)
	require.Len(t, g.Act(after(1001)).Activate, 1)
}

// TestScoutThatDoesNotCome: it may be kept by another plugin, so that other members are activated too.
func TestScoutThatDoesNotCome(t *testing.T) {
	g, _ := newGang(3, 3)
	require.True(t, g.Admit(start))
	seen := map[types.UID]bool{}
	for ms := range 200 {
		for _, uid := range g.Act(after(ms)).Activate {
			seen[uid] = true
		}
	}
	require.Len(t, seen, 3)
}

// TestFirstsGoFirst: one member of each template finds a node before the others are called.
func TestFirstsGoFirst(t *testing.T) {
	g, ids := scouting(t, 4, 4)
	require.True(t, g.Gather(gang.Round{Members: ids, First: []types.UID{ids[0], ids[2]}}, start))
	require.ElementsMatch(t, []types.UID{ids[0], ids[2]}, g.Act(start).Activate)
	requireRefuses(t, g, ids[1], start, gang.ReasonQueued, "")
	for i, id := range []types.UID{ids[0], ids[2]} {
		if i > 0 {
			_, reason, _ := g.Enter(id, after(1))
			require.Empty(t, reason)
		}
		waits, _, _ := g.Permit(id, "node", after(1))
		require.True(t, waits)
	}
	require.ElementsMatch(t, []types.UID{ids[1], ids[3]}, g.Act(after(1)).Activate)
}

// TestFirstThatIsNoGuide: the others do not wait for one that is bound behind the scheduler's back, or that another
// plugin's error keeps from a node.
func TestFirstThatIsNoGuide(t *testing.T) {
	for name, happens := range map[string]func(g *gang.Gang, first types.UID) time.Time{
		"bound": func(g *gang.Gang, first types.UID) time.Time {
			g.SetPod(first, gang.Pod{Bound: true}, after(1))
			return after(1)
		},
		"held": func(g *gang.Gang, first types.UID) time.Time {
			g.SetPod(first, gang.Pod{Held: true}, after(1))
			return after(1)
		},
		"errors": func(g *gang.Gang, _ types.UID) time.Time {
			next := g.Act(after(1)).Next
			for !next.After(after(499)) {
				next = g.Act(next).Next
			}
			return next
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, ids := scouting(t, 3, 4)
			require.True(t, g.Gather(gang.Round{Members: ids, First: ids[:1]}, start))
			g.Act(start)
			now := happens(g, ids[0])
			require.Subset(t, g.Act(now).Activate, ids[1:])
		})
	}
}

// TestMemberIsTriedAgain in the same round, after it has come back to the queue; and then fails.
func TestMemberIsTriedAgain(t *testing.T) {
	g, ids := scouting(t, 2, 2)
	require.True(t, g.Gather(gang.Round{Members: ids, First: ids[:1]}, start))
	require.False(t, g.Unschedulable(ids[0], true, "no device", "", start))
	require.Empty(t, g.Act(start).Activate, "Activate would only mean the framework's backoff now")
	require.Equal(t, ids[:1], g.Act(after(1)).Activate)
	_, reason, _ := g.Enter(ids[0], after(2))
	require.Empty(t, reason)
	require.False(t, g.Unschedulable(ids[0], false, "no device", "", after(2)))
	require.Equal(t, gang.Backoff, g.Phase())
	require.Zero(t, g.RoundNumber())
}

// TestFailedMemberIsOutOfTheRound: one that the quorum can do without is tried again when that has been released.
func TestFailedMemberIsOutOfTheRound(t *testing.T) {
	g, ids := gathering(t, 2, 3)
	require.False(t, g.Unschedulable(ids[2], false, "no room", "no room", after(1)))
	requireRefuses(t, g, ids[2], after(2), gang.ReasonSpare, "quorum")
	wait(t, g, after(3), ids[:2]...)
	require.Len(t, g.Release(ids[:2], after(4)), 2)
	require.Equal(t, ids[2:], g.Act(after(4)).Activate)
}

// TestSpareMembersAreNotPartOfTheRound: what the proposal has no node for waits until the quorum has been released.
func TestSpareMembersAreNotPartOfTheRound(t *testing.T) {
	g, ids := scouting(t, 2, 3)
	require.False(t, g.Gather(gang.Round{Members: ids[:1], First: ids[:1]}, start), "one of two")
	require.True(t, g.Gather(gang.Round{Members: ids[:2], First: ids[:2]}, start))
	requireRefuses(t, g, ids[2], start, gang.ReasonSpare, "quorum")
	for _, id := range ids[:2] {
		waits, _, _ := g.Permit(id, "node", after(1))
		require.True(t, waits)
	}
	require.Len(t, g.Release(ids[:2], after(2)), 2)
	require.Equal(t, ids[2:], g.Act(after(2)).Activate)
	_, reason, _ := g.Enter(ids[2], after(2))
	require.Empty(t, reason)
}

// TestQuorumIsRaisedInARound: it begins again, with the members that were not part of it, and without a backoff.
func TestQuorumIsRaisedInARound(t *testing.T) {
	g, ids := scouting(t, 2, 3)
	require.True(t, g.Gather(gang.Round{Members: ids[:2], First: ids[:2]}, start))
	g.SetGroup(gang.Spec{UID: "g", MinMember: 3}, after(1))
	require.Equal(t, gang.Queued, g.Phase())
	require.Equal(t, ids, gather(t, g, after(2)))
}
