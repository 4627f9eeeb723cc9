package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// preparing is config with a bound for the way to the barrier.
var preparingConfig = func() gang.Config {
	c := config
	c.PrepareTimeout = 20 * time.Second
	return c
}()

// passBarrier has the members arrive at the barrier and pass it together.
func passBarrier(t *testing.T, g *gang.Gang, now time.Time, ids ...types.UID) {
	t.Helper()
	var commit []types.UID
	for _, id := range ids {
		commit = g.Arrive(id, now)
	}
	require.ElementsMatch(t, ids, commit, "with the last that arrives")
	g.Commit(ids, nil, now)
	for _, id := range ids {
		requireVerdict(t, g, id, gang.ArrivalPass, "")
		require.False(t, g.Holds(id))
	}
}

func requireVerdict(t *testing.T, g *gang.Gang, id types.UID, want gang.Arrival, words string) {
	t.Helper()
	arrival, detail := g.ArrivalOf(id)
	require.Equal(t, want, arrival, detail)
	require.Contains(t, detail, words)
}

// released returns a gang of which all members have been let go.
func released(t *testing.T, minMember, members int) (*gang.Gang, []types.UID) {
	t.Helper()
	g, ids := newGangOf(preparingConfig, minMember, members)
	wait(t, g, after(10), ids...)
	require.ElementsMatch(t, ids, g.Release(ids, after(10)))
	return g, ids
}

func TestMembersPassTheBarrierTogether(t *testing.T) {
	g, ids := released(t, 3, 3)
	require.Empty(t, g.Arrive(ids[0], after(20)))
	require.Empty(t, g.Arrive(ids[1], after(30)))
	require.Equal(t, after(20_010), g.Act(after(30)).Next, "when the preparation times out")
	requireVerdict(t, g, ids[0], gang.ArrivalWait, "")
	require.True(t, g.Holds(ids[0]))

	require.ElementsMatch(t, ids, g.Arrive(ids[2], after(40)))
	before := g.Departures()
	g.Commit(ids, nil, after(50))
	require.Equal(t, before+3, g.Departures())
	require.Equal(t, gang.Releasing, g.Phase())
	for _, id := range ids {
		requireVerdict(t, g, id, gang.ArrivalPass, "")
	}
	require.Empty(t, g.Act(after(60_000)).Rollbacks, "the binds themselves have no deadline")
}

// TestMemberIsLostAtTheBarrier: of a gang that needs all its members nobody is bound.
func TestMemberIsLostAtTheBarrier(t *testing.T) {
	for name, c := range map[string]struct {
		lose  func(g *gang.Gang, id types.UID)
		cause gang.Cause
		phase gang.Phase
	}{
		"stopped before the commit": {func(g *gang.Gang, id types.UID) { g.Unreserved(id, after(30)) }, gang.CauseNotPrepared, gang.Backoff},
		"stopped during the commit": {func(g *gang.Gang, id types.UID) {
			g.Arrive("m1", after(30))
			g.Commit(uids(2), []types.UID{id}, after(30))
		}, gang.CauseNotPrepared, gang.Backoff},
		"deleted": {func(g *gang.Gang, id types.UID) { g.DeletePod(id, after(30)) }, gang.CauseMembersLeft, gang.Queued},
		"never prepared": {func(g *gang.Gang, _ types.UID) {
			g.Settle(after(20_010))
		}, gang.CauseNotPrepared, gang.Backoff},
		"the quorum has been raised": {func(g *gang.Gang, _ types.UID) {
			g.SetGroup(gang.Spec{UID: "g", MinMember: 4}, after(30))
		}, gang.CauseNotPrepared, gang.Backoff},
		"the PodGroup is deleted": {func(g *gang.Gang, _ types.UID) { g.DeleteGroup(after(30)) }, gang.CauseGroupGone, gang.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			g, ids := released(t, 3, 3)
			g.SetPod("spare", gang.Pod{}, after(10))
			g.Arrive(ids[0], after(20))
			g.Arrive(ids[2], after(20))
			c.lose(g, ids[2])
			requireVerdict(t, g, ids[0], gang.ArrivalRefused, "")
			requireVerdict(t, g, ids[1], gang.ArrivalRefused, "")
			require.Zero(t, g.Preparing())
			require.Equal(t, c.phase, g.Phase())
			a := g.Act(after(30_000))
			require.Equal(t, []gang.Cause{c.cause}, a.Rollbacks)
			require.Contains(t, a.Reject, ids[1], "it may be in the middle of its preparation")
		})
	}
}

// TestElasticGangLosesAMemberAtTheBarrier: the others still make up the quorum.
func TestElasticGangLosesAMemberAtTheBarrier(t *testing.T) {
	g, ids := released(t, 3, 4)
	for _, id := range ids {
		g.Arrive(id, after(20))
	}
	g.Commit(ids[:3], ids[3:], after(30))
	for _, id := range ids[:3] {
		requireVerdict(t, g, id, gang.ArrivalPass, "")
	}
	requireVerdict(t, g, ids[3], gang.ArrivalRefused, "")
	require.Empty(t, g.Act(after(40)).Rollbacks)
}

// TestStrangerAtTheBarrier: nobody passes who was not let go.
func TestStrangerAtTheBarrier(t *testing.T) {
	g, ids := newGang(3, 3)
	for _, id := range []types.UID{ids[0], "stranger"} {
		g.Arrive(id, after(10))
		requireVerdict(t, g, id, gang.ArrivalRefused, "")
	}
	g.SetPod(ids[1], gang.Pod{Bound: true}, after(10))
	g.Arrive(ids[1], after(10))
	requireVerdict(t, g, ids[1], gang.ArrivalPass, "")
}
