package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// rehearsals returns those that are to be run now, by member.
func rehearsals(g *gang.Gang, ms int) map[types.UID]gang.Rehearsal {
	byUID := map[types.UID]gang.Rehearsal{}
	for _, r := range g.Act(after(ms)).Rehearse {
		byUID[r.UID] = r
	}
	return byUID
}

func TestGangIsLetGoWhenAllRehearsalsHavePassed(t *testing.T) {
	g, ids := newGang(3, 3)
	g.SetRehearse(true, start)
	wait(t, g, after(10), ids[:2]...)
	runs := rehearsals(g, 10)
	require.Len(t, runs, 2, "while the others are on their way")
	require.Empty(t, rehearsals(g, 11), "each once")
	g.Rehearsed(runs[ids[0]], "", after(20))
	g.Rehearsed(runs[ids[1]], "", after(20))
	wait(t, g, after(30), ids[2])
	runs = rehearsals(g, 30)
	require.Len(t, runs, 1)
	require.Empty(t, g.Act(after(100)).Probe)
	require.Nil(t, g.Release(ids, after(100)))

	g.Rehearsed(runs[ids[2]], "", after(200))
	require.ElementsMatch(t, ids, g.Act(after(200)).Probe)
	require.ElementsMatch(t, ids, g.Release(ids, after(200)))
}

func TestRefusedRehearsalSendsTheGangBack(t *testing.T) {
	g, ids := newGang(3, 3)
	g.SetRehearse(true, start)
	wait(t, g, after(10), ids...)
	runs := rehearsals(g, 10)
	g.Rehearsed(runs[ids[0]], "", after(20))
	g.Rehearsed(runs[ids[1]], "says a policy", after(20))
	require.Equal(t, gang.Backoff, g.Phase())
	require.False(t, g.Rehearsing(runs[ids[2]]), "its result is of no interest any more")
	g.Rehearsed(runs[ids[2]], "says another", after(30))

	a := g.Act(after(200))
	require.Equal(t, map[gang.Cause]int{gang.CauseBindRefused: 1}, a.Rollbacks)
	require.Equal(t, ids[1], a.Rollback.Member)
	require.Equal(t, "says a policy", a.Rollback.Detail)
	require.ElementsMatch(t, ids, a.Reject)

	// Room does not help.
	g.RoomFreed(after(300))
	requireRefuses(t, g, ids[0], after(400), gang.ReasonBackoff, "says a policy")
}

// TestRefusedBindIsProbed: while the gang holds nothing, the one bind that was refused is rehearsed, at intervals that grow to two
// seconds and start over when policies change. When it passes, the gang comes back at once.
func TestRefusedBindIsProbed(t *testing.T) {
	c := config
	c.InitialBackoff, c.MaxBackoff = time.Hour, time.Hour
	g := gang.New(c)
	g.SetGroup(gang.Spec{UID: "g", MinMember: 2}, start)
	ids := uids(2)
	for _, id := range ids {
		g.SetPod(id, gang.Pod{}, start)
	}
	g.SetRehearse(true, start)
	wait(t, g, start, ids...)
	refused := rehearsals(g, 0)[ids[1]]
	g.Rehearsed(refused, "says a policy", start)
	require.Equal(t, gang.Backoff, g.Phase())
	g.Act(start)
	for _, id := range ids {
		g.Unreserved(id, after(1))
	}
	probe := func(ms int) gang.Rehearsal {
		t.Helper()
		require.Empty(t, rehearsals(g, ms-1))
		runs := rehearsals(g, ms)
		require.Len(t, runs, 1)
		require.True(t, runs[ids[1]].Probe)
		g.Rehearsed(runs[ids[1]], "says a policy", after(ms))
		return runs[ids[1]]
	}
	ms := 0
	for _, interval := range []int{250, 250, 500, 1000, 1000} {
		ms += interval
		probe(ms)
	}
	g.AdmissionChanged(after(3_100))
	require.Len(t, rehearsals(g, 3_100), 1)
	require.Equal(t, gang.Backoff, g.Phase())
	last := probe(3_350)
	g.Rehearsed(last, "", after(3_360))
	require.Equal(t, gang.Queued, g.Phase())
	require.Empty(t, rehearsals(g, 20_000))
}

// TestRehearsalsDoNotCountAgainstTheDeadline: all members have a node, and what is left to do is up to a slow webhook.
func TestRehearsalsDoNotCountAgainstTheDeadline(t *testing.T) {
	g, ids := newGang(2, 2)
	g.SetRehearse(true, start)
	wait(t, g, start, ids[0])
	wait(t, g, after(59_000), ids[1])
	runs := rehearsals(g, 59_000)
	g.Act(after(300_000))
	require.Equal(t, gang.Waiting, g.Phase())
	for _, id := range ids {
		g.Rehearsed(runs[id], "", after(300_000))
	}
	require.Equal(t, after(301_000), func() time.Time {
		for a := g.Act(after(300_000)); ; a = g.Act(after(300_999)) {
			if len(a.Probe) == 0 {
				return a.Next
			}
		}
	}(), "what was left of the timeout, for whatever else keeps them")
	a := g.Act(after(301_000))
	require.Equal(t, gang.CauseTimeout, a.Rollback.Cause)
}

// TestRehearsalsOfAnEarlierWait: what was found out about another node or under other policies is nothing.
func TestRehearsalsOfAnEarlierWait(t *testing.T) {
	g, ids := newGang(2, 2)
	g.SetRehearse(true, start)
	wait(t, g, after(10), ids...)
	old := rehearsals(g, 10)
	g.Rehearsed(old[ids[0]], "", after(20))
	g.AdmissionChanged(after(30))
	runs := rehearsals(g, 30)
	require.Len(t, runs, 2)
	g.Rehearsed(old[ids[1]], "says an old policy", after(40))
	require.Equal(t, gang.Waiting, g.Phase())

	g.Rehearsed(runs[ids[0]], "", after(50))
	g.Rehearsed(runs[ids[1]], "", after(50))
	require.Len(t, g.Act(after(50)).Probe, 2)
}

func TestRehearsalsAreTurnedOff(t *testing.T) {
	g, ids := newGang(2, 2)
	g.SetRehearse(true, start)
	wait(t, g, after(10), ids...)
	runs := rehearsals(g, 10)
	g.SetRehearse(false, after(20))
	require.False(t, g.Rehearsing(runs[ids[0]]))
	require.Len(t, g.Release(ids, after(20)), 2)
}

// TestElasticGangGoesWithoutARefusedMember: those that would be bound are enough.
func TestElasticGangGoesWithoutARefusedMember(t *testing.T) {
	g, ids := newGang(2, 3)
	g.SetRehearse(true, start)
	wait(t, g, after(10), ids...)
	runs := rehearsals(g, 10)
	g.Rehearsed(runs[ids[0]], "says a policy", after(20))
	require.Equal(t, gang.Waiting, g.Phase())
	require.Equal(t, []types.UID{ids[0]}, g.Act(after(20)).Reject)
	g.Rehearsed(runs[ids[1]], "", after(30))
	g.Rehearsed(runs[ids[2]], "", after(30))
	require.ElementsMatch(t, ids[1:], g.Release(ids, after(40)))
}
