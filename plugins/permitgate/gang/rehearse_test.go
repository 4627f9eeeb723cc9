package gang_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// rehearsingGang is newGang whose binds are rehearsed. Members are of the templates in turn.
func rehearsingGang(minMember, members int, templates ...string) (*gang.Gang, []types.UID) {
	c := config
	c.Rehearse = true
	g := gang.New(c)
	g.SetGroup(gang.Spec{UID: "g", MinMember: minMember}, start)
	ids := uids(members)
	for i, id := range ids {
		g.SetPod(id, gang.Pod{Template: gang.Template{Needs: templates[i%len(templates)]}}, start)
	}
	g.Act(start)
	return g, ids
}

// rehearsals returns those that are to be begun now, by member.
func rehearsals(g *gang.Gang, ms int) []gang.Rehearsal {
	due := g.Act(after(ms)).Rehearse
	slices.SortFunc(due, func(a, b gang.Rehearsal) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return due
}

// TestOneMemberOfEachTemplateIsRehearsed: before the gang is let go, and no other.
func TestOneMemberOfEachTemplateIsRehearsed(t *testing.T) {
	g, ids := rehearsingGang(4, 4, "driver", "worker")
	wait(t, g, after(10), ids[0])
	driver := rehearsals(g, 10)
	require.Len(t, driver, 1, "while the others are on their way")
	require.Equal(t, ids[0], driver[0].UID)
	require.Empty(t, rehearsals(g, 11), "once")
	g.Rehearsed(driver[0], "", after(20))
	wait(t, g, after(30), ids[1:]...)
	worker := rehearsals(g, 30)
	require.Len(t, worker, 1)
	require.Equal(t, ids[1], worker[0].UID)
	require.Empty(t, g.Act(after(100)).Probe)
	require.Nil(t, g.Release(ids, after(100)))

	g.Rehearsed(worker[0], "", after(200))
	require.ElementsMatch(t, ids, g.Act(after(200)).Probe)
	require.ElementsMatch(t, ids, g.Release(ids, after(200)))
}

func TestRefusedRehearsalSendsTheGangBack(t *testing.T) {
	g, ids := rehearsingGang(3, 3, "driver", "worker")
	wait(t, g, after(10), ids...)
	runs := rehearsals(g, 10)
	require.Len(t, runs, 2)
	g.Rehearsed(runs[1], "says a policy", after(20))
	require.Equal(t, gang.Backoff, g.Phase())
	require.False(t, g.Rehearsing(runs[0]), "its result is of no interest any more")
	g.Rehearsed(runs[0], "says another", after(30))

	a := g.Act(after(200))
	require.Equal(t, []gang.Cause{gang.CauseBindRefused}, a.Rollbacks)
	require.Equal(t, ids[1], a.Rollback.Member)
	require.Equal(t, "says a policy", a.Rollback.Detail)
	require.ElementsMatch(t, ids, a.Reject)
	require.Empty(t, a.Rehearse)

	// Room does not help.
	g.RoomFreed(after(300))
	requireRefuses(t, g, ids[0], after(400), gang.ReasonBackoff, "says a policy")

	// The next round asks again, also for what passed in this one.
	for _, id := range ids {
		g.Unreserved(id, after(500))
	}
	g.Act(after(60_000))
	wait(t, g, after(60_000), ids...)
	require.Len(t, rehearsals(g, 60_000), 2)
}

// TestRehearsalsDoNotCountAgainstTheDeadline: all members have a node, and what is left to do is up to a slow webhook.
func TestRehearsalsDoNotCountAgainstTheDeadline(t *testing.T) {
	g, ids := rehearsingGang(2, 2, "driver", "worker")
	wait(t, g, start, ids[0])
	g.Rehearsed(rehearsals(g, 0)[0], "", start)
	wait(t, g, after(1_000), ids[1])
	run := rehearsals(g, 1_000)
	require.Len(t, run, 1)
	g.Act(after(300_000))
	require.Equal(t, gang.Waiting, g.Phase())
	g.Rehearsed(run[0], "", after(300_000))
	require.Equal(t, after(360_000), func() time.Time {
		for a := g.Act(after(300_000)); ; a = g.Act(after(359_999)) {
			if len(a.Probe) == 0 {
				return a.Next
			}
		}
	}(), "the timeout, for whatever else keeps them")
	a := g.Act(after(360_000))
	require.Equal(t, gang.CauseTimeout, a.Rollback.Cause)
}

// TestAnotherMemberIsRehearsed: when the one whose bind was rehearsed is lost. What is heard of its rehearsal then is
// nothing.
func TestAnotherMemberIsRehearsed(t *testing.T) {
	g, ids := rehearsingGang(2, 3, "worker")
	wait(t, g, after(10), ids...)
	old := rehearsals(g, 10)
	require.Len(t, old, 1)
	g.DeletePod(old[0].UID, after(20))
	run := rehearsals(g, 20)
	require.Len(t, run, 1)
	require.NotEqual(t, old[0].UID, run[0].UID)
	g.Rehearsed(old[0], "says a policy", after(40))
	require.Equal(t, gang.Waiting, g.Phase())
	require.Empty(t, g.Act(after(50)).Probe)

	g.Rehearsed(run[0], "", after(50))
	require.ElementsMatch(t, ids[1:], g.Act(after(50)).Probe)
}

// TestRefusedMemberIsRehearsedAgain: a policy may refuse that member alone, so in later rounds no other of its template
// is rehearsed for it, even if others wait before.
func TestRefusedMemberIsRehearsedAgain(t *testing.T) {
	g, ids := rehearsingGang(3, 3, "worker")
	wait(t, g, after(10), ids[1])
	g.Rehearsed(rehearsals(g, 10)[0], "says a policy", after(20))
	require.Equal(t, gang.Backoff, g.Phase())
	require.True(t, g.BindRefused(ids[1]))
	g.Unreserved(ids[1], after(30))
	g.Act(after(60_000))
	wait(t, g, after(60_000), ids[0], ids[2])
	require.Empty(t, rehearsals(g, 60_000))
	wait(t, g, after(60_001), ids[1])
	run := rehearsals(g, 60_001)
	require.Len(t, run, 1)
	require.Equal(t, ids[1], run[0].UID)
	g.Rehearsed(run[0], "", after(60_002))
	require.False(t, g.BindRefused(ids[1]))
	require.ElementsMatch(t, ids, g.Release(ids, after(60_003)))
}

// TestLostTemplateKeepsNobody: when no member of it waits any more, its rehearsal is not awaited.
func TestLostTemplateKeepsNobody(t *testing.T) {
	g, ids := rehearsingGang(1, 2, "driver", "worker")
	g.SetGroup(gang.Spec{UID: "g", MinMember: 2}, start)
	wait(t, g, after(10), ids...)
	runs := rehearsals(g, 10)
	require.Len(t, runs, 2)
	g.Rehearsed(runs[1], "", after(20))
	g.SetGroup(gang.Spec{UID: "g", MinMember: 1}, after(30))
	g.DeletePod(ids[0], after(40))
	require.Equal(t, ids[1:], g.Act(after(50)).Probe)
	require.Equal(t, ids[1:], g.Release(ids, after(50)))
}

// TestElasticGangGoesWithoutARefusedMember: those that would be bound are enough.
func TestElasticGangGoesWithoutARefusedMember(t *testing.T) {
	g, ids := rehearsingGang(2, 3, "worker")
	wait(t, g, after(10), ids...)
	g.Rehearsed(rehearsals(g, 10)[0], "says a policy", after(20))
	require.Equal(t, gang.Waiting, g.Phase())
	a := g.Act(after(20))
	require.Equal(t, []types.UID{ids[0]}, a.Reject)
	require.Len(t, a.Rehearse, 1, "another of the template")
	require.Equal(t, ids[1], a.Rehearse[0].UID)
	g.Rehearsed(a.Rehearse[0], "", after(30))
	require.ElementsMatch(t, ids[1:], g.Release(ids, after(40)))
}
