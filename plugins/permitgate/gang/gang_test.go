package gang_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

var (
	start  = time.Unix(1_000_000, 0)
	config = gang.Config{
		Timeout: time.Minute, InitialBackoff: time.Second, MaxBackoff: 8 * time.Second,
		PrepareTimeout: 24 * time.Hour, RecoveryTimeout: 24 * time.Hour,
		Jitter: func() float64 { return 0 },
	}
)

// after returns a time so many milliseconds after the start.
func after(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func uids(n int) []types.UID {
	ids := make([]types.UID, n)
	for i := range ids {
		ids[i] = types.UID(fmt.Sprintf("m%d", i))
	}
	return ids
}

// newGang returns a gang with a PodGroup and as many unbound members as asked for.
func newGang(minMember, members int) (*gang.Gang, []types.UID) {
	return newGangOf(config, minMember, members)
}

// newGangOf is newGang with another configuration.
func newGangOf(c gang.Config, minMember, members int) (*gang.Gang, []types.UID) {
	g := gang.New(c)
	g.SetGroup(gang.Spec{UID: "g", MinMember: minMember}, start)
	ids := uids(members)
	for _, id := range ids {
		g.SetPod(id, gang.Pod{}, start)
	}
	g.Act(start) // the activations that the arrivals asked for
	return g, ids
}

// gather admits the gang and begins a round with all members that lack a node; the first of ids is the scout.
func gather(t *testing.T, g *gang.Gang, now time.Time) []types.UID {
	t.Helper()
	require.True(t, g.Admit(now))
	a := g.Act(now)
	require.Len(t, a.Activate, 1, "the scout")
	scout, reason, detail := g.Enter(a.Activate[0], now)
	require.True(t, scout, "%s: %s", reason, detail)
	members, need := g.Missing(), g.Lacking()
	require.GreaterOrEqual(t, len(members), need)
	slices.Sort(members)
	require.True(t, g.Gather(gang.Round{Members: members, First: members}, now))
	return members
}

// gathering is newGang in a round.
func gathering(t *testing.T, minMember, members int) (*gang.Gang, []types.UID) {
	t.Helper()
	g, ids := newGang(minMember, members)
	gather(t, g, start)
	return g, ids
}

// scouting is newGang whose first member has come to a cycle, to find out for all of them.
func scouting(t *testing.T, minMember, members int) (*gang.Gang, []types.UID) {
	t.Helper()
	g, ids := newGang(minMember, members)
	require.True(t, g.Admit(start))
	g.Act(start)
	enter(t, g, start, ids[0])
	return g, ids
}

// enter has a member come to a cycle.
func enter(t *testing.T, g *gang.Gang, now time.Time, id types.UID) {
	t.Helper()
	_, reason, detail := g.Enter(id, now)
	require.Empty(t, reason, detail)
}

// wait puts members into Permit, in a round that is begun if there is none.
func wait(t *testing.T, g *gang.Gang, now time.Time, ids ...types.UID) {
	t.Helper()
	if g.Settle(now); g.Phase() == gang.Queued {
		gather(t, g, now)
	}
	for _, id := range ids {
		enter(t, g, now, id)
		waits, reason, detail := g.Permit(id, "node", now)
		require.Equal(t, gang.ReasonNone, reason, detail)
		require.True(t, waits, id)
	}
}

// full has a member find no node anywhere.
func full(t *testing.T, g *gang.Gang, now time.Time, id types.UID) {
	t.Helper()
	enter(t, g, now, id)
	require.False(t, g.Unschedulable(id, false, "no room", "no room", now))
}

func requireAdmits(t *testing.T, g *gang.Gang, id types.UID, now time.Time) {
	t.Helper()
	reason, detail, _ := g.Enqueue(id, now)
	require.Equal(t, gang.ReasonNone, reason, detail)
}

func requireRefuses(t *testing.T, g *gang.Gang, id types.UID, now time.Time, want gang.Reason, words string) {
	t.Helper()
	reason, detail, _ := g.Enqueue(id, now)
	require.Equal(t, want, reason, detail)
	require.Contains(t, detail, words)
}

func TestAdmission(t *testing.T) {
	g := gang.New(config)
	require.True(t, g.Empty())
	requireRefuses(t, g, "m0", start, gang.ReasonNotFound, "does not exist")

	g.SetPod("m0", gang.Pod{}, start)
	require.False(t, g.Empty())
	requireRefuses(t, g, "m0", start, gang.ReasonNotFound, "does not exist")

	for _, minMember := range []int{0, -3} {
		g.SetGroup(gang.Spec{UID: "g", MinMember: minMember}, start)
		requireRefuses(t, g, "m0", start, gang.ReasonInvalid, fmt.Sprintf("spec.minMember is %d", minMember))
	}
	g.SetGroup(gang.Spec{UID: "g", MinMember: 3}, start)
	requireRefuses(t, g, "m0", start, gang.ReasonTooFew, "needs 3 members, 1 exist")

	g.SetPod("m1", gang.Pod{Bound: true}, start)
	g.SetPod("m2", gang.Pod{Held: true}, start)
	requireRefuses(t, g, "m0", start, gang.ReasonTooFew, "needs 3 members, 2 exist and 1 more are held back")
	require.Empty(t, g.Act(start).Activate)

	g.SetPod("m2", gang.Pod{}, start)
	require.Equal(t, gang.Queued, g.Phase())
	requireRefuses(t, g, "m0", start, gang.ReasonQueued, "admitted")
	requireRefuses(t, g, "stranger", start, gang.ReasonUnknown, "not been seen")
	require.Empty(t, g.Act(start).Activate, "before it is admitted")
	require.Equal(t, []types.UID{"m0", "m2"}, gather(t, g, start), "not the bound one")
	requireAdmits(t, g, "m0", start)
	require.Contains(t, g.Act(start).Activate, types.UID("m2"))

	g.DeletePod("m2", start)
	requireRefuses(t, g, "m0", start, gang.ReasonTooFew, "needs 3 members, 2 exist")
	g.SetGroup(gang.Spec{UID: "g", MinMember: 2}, start)
	requireAdmits(t, g, "m0", start)
}

func TestQuorumIsLetGoTogether(t *testing.T) {
	g, ids := newGang(3, 3)
	wait(t, g, after(10), ids[:2]...)
	require.Equal(t, gang.Waiting, g.Phase())
	require.Empty(t, g.Act(after(10)).Probe)
	require.Nil(t, g.Release(ids[:2], after(10)), "two of three")

	wait(t, g, after(20), ids[2])
	require.ElementsMatch(t, ids, g.Act(after(20)).Probe)
	require.Nil(t, g.Release(ids[:2], after(20)), "the third was not seen waiting")
	require.Equal(t, gang.Waiting, g.Phase())
	require.ElementsMatch(t, ids, g.Release(ids, after(30)))
	require.Equal(t, gang.Releasing, g.Phase())
	passBarrier(t, g, after(35), ids...)
	require.Equal(t, gang.Releasing, g.Phase())

	g.SetPod(ids[0], gang.Pod{Bound: true}, after(40))
	g.Bound(ids[0], after(40))
	g.Bound(ids[1], after(40))
	g.SetPod(ids[1], gang.Pod{}, after(40)) // an older view of the pod
	require.Equal(t, gang.Releasing, g.Phase())
	g.Bound(ids[2], after(50))
	require.Equal(t, gang.Whole, g.Phase())
	a := g.Act(after(50))
	require.True(t, a.BecameWhole)
	require.Equal(t, 50*time.Millisecond, a.TimeToWhole)
	require.True(t, a.Next.IsZero(), "a whole gang has nothing more to do")
	require.False(t, g.Act(after(60)).BecameWhole, "reported once")
}

func TestRollback(t *testing.T) {
	for name, tt := range map[string]struct {
		fail  func(g *gang.Gang, ids []types.UID)
		cause gang.Cause
		phase gang.Phase
	}{
		"time is up": {func(g *gang.Gang, ids []types.UID) {
			g.Enqueue(ids[2], after(60_010))
		}, gang.CauseTimeout, gang.Backoff},
		"a waiting member is deleted": {func(g *gang.Gang, ids []types.UID) {
			g.DeletePod(ids[0], after(20))
		}, gang.CauseMembersLeft, gang.Pending},
		"the PodGroup is deleted": {func(g *gang.Gang, _ []types.UID) {
			g.DeleteGroup(after(20))
		}, gang.CauseGroupGone, gang.Pending},
		"the PodGroup becomes invalid": {func(g *gang.Gang, _ []types.UID) {
			g.SetGroup(gang.Spec{UID: "g"}, after(20))
		}, gang.CauseGroupGone, gang.Pending},
		"the PodGroup is replaced": {func(g *gang.Gang, _ []types.UID) {
			g.SetGroup(gang.Spec{UID: "g2", MinMember: 3}, after(20))
		}, gang.CauseGroupGone, gang.Queued},
	} {
		t.Run(name, func(t *testing.T) {
			g, ids := newGang(3, 3)
			wait(t, g, after(10), ids[:2]...)
			tt.fail(g, ids)
			require.Equal(t, tt.phase, g.Phase())

			now := after(60_010)
			a := g.Act(now)
			require.NotNil(t, a.Rollback)
			require.Equal(t, tt.cause, a.Rollback.Cause)
			require.Equal(t, []gang.Cause{tt.cause}, a.Rollbacks)
			require.Empty(t, a.Probe)
			require.NotEmpty(t, a.Reject)
			for _, id := range ids[:2] {
				if g.Holds(id) {
					require.Contains(t, a.Reject, id)
				}
				g.Unreserved(id, now)
				require.False(t, g.Holds(id))
			}
			_, waiting, _ := g.Counts()
			require.Zero(t, waiting)
			require.Empty(t, g.Act(now.Add(time.Minute)).Reject)
			require.Nil(t, g.Act(now.Add(time.Minute)).Rollback, "reported once")
		})
	}
}

// TestMembersDeletedTogether: when a gang is deleted, each of its waiting pods is rejected by the
// framework; the rollback that the first deletion causes must not reject the others at the same moment.
func TestMembersDeletedTogether(t *testing.T) {
	for name, first := range map[string]func(g *gang.Gang, id types.UID){
		"the deletion is seen first": func(g *gang.Gang, id types.UID) { g.DeletePod(id, after(20)) },
		"Unreserve comes first":      func(g *gang.Gang, id types.UID) { g.Unreserved(id, after(20)) },
		"with the PodGroup":          func(g *gang.Gang, _ types.UID) { g.DeleteGroup(after(20)) },
	} {
		t.Run(name, func(t *testing.T) {
			g, ids := newGang(3, 3)
			wait(t, g, after(10), ids[0], ids[1])
			first(g, ids[0])
			require.Empty(t, g.Act(after(20)).Reject)
			for _, id := range ids {
				g.DeletePod(id, after(30))
			}
			g.Unreserved(ids[0], after(30))
			require.Empty(t, g.Act(after(119)).Reject)
			require.Equal(t, ids[1:2], g.Act(after(130)).Reject, "once the framework had its time")
			g.Unreserved(ids[1], after(140))
			g.DeleteGroup(after(140))
			require.True(t, g.Empty())
		})
	}
}

func TestReplacementInAWholeGang(t *testing.T) {
	g, ids := newGang(3, 3)
	for _, id := range ids {
		g.SetPod(id, gang.Pod{Bound: true}, after(10))
	}
	require.Equal(t, gang.Whole, g.Phase())
	require.False(t, g.Act(after(10)).BecameWhole, "as found after a restart, not by this scheduler")

	g.DeletePod(ids[0], after(1000))
	require.Equal(t, gang.Pending, g.Phase())
	g.SetPod("new", gang.Pod{}, after(2000))
	require.Equal(t, []types.UID{"new"}, g.Act(after(2000)).Activate)
	waits, reason, _ := g.Permit("new", "node", after(2010))
	require.Equal(t, gang.ReasonNone, reason)
	require.False(t, waits, "the others are bound")
	g.Bound("new", after(2020))
	a := g.Act(after(2020))
	require.True(t, a.BecameWhole)
	require.Equal(t, 20*time.Millisecond, a.TimeToWhole)
}

func TestFailedBindIsRetriedAlone(t *testing.T) {
	g, ids := newGang(3, 3)
	wait(t, g, after(10), ids...)
	require.Len(t, g.Release(ids, after(10)), 3)
	passBarrier(t, g, after(15), ids...)
	g.Bound(ids[0], after(20))
	g.Act(after(20))
	g.Unreserved(ids[1], after(20))
	require.Equal(t, gang.Gathering, g.Phase())
	require.Empty(t, g.Act(after(20)).Activate, "the framework's backoff of the pod is not cut short")
	g.Bound(ids[2], after(30))

	requireAdmits(t, g, ids[1], after(1000))
	g.Enter(ids[1], after(1000))
	waits, _, _ := g.Permit(ids[1], "node", after(1000))
	require.False(t, waits)
	g.Bound(ids[1], after(1010))
	require.Equal(t, gang.Whole, g.Phase())
}

// TestAllBindsFail: the gang backs off, as the next round may fail as soon.
func TestAllBindsFail(t *testing.T) {
	g, ids := newGang(2, 2)
	wait(t, g, start, ids...)
	require.Len(t, g.Release(ids, start), 2)
	passBarrier(t, g, start, ids...)
	g.Unreserved(ids[0], start)
	require.NotEqual(t, gang.Backoff, g.Phase(), "the other one may still be bound")
	g.Unreserved(ids[1], start)
	require.Equal(t, gang.Backoff, g.Phase())
	require.GreaterOrEqual(t, g.Act(start).Next, start.Add(config.InitialBackoff/2))
	requireRefuses(t, g, ids[0], start, gang.ReasonBackoff, "the binds of all members have failed")
}

// TestOnlyMemberIsNotPrepared: a gang of one is rolled back like others, and stays away ten times as long as it held its
// node.
func TestOnlyMemberIsNotPrepared(t *testing.T) {
	g, ids := newGang(1, 1)
	enter(t, g, start, ids[0])
	g.Permit(ids[0], "node", start)
	failed := after(5000)
	g.Unreserved(ids[0], failed)
	require.Equal(t, gang.Backoff, g.Phase())
	require.Equal(t, failed.Add(50*time.Second), g.RetryAt())
}
