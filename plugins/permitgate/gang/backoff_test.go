package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// failRound lets one member wait and another fail, and has the waiting one unreserved.
func failRound(t *testing.T, g *gang.Gang, ids []types.UID, now time.Time) *gang.Rollback {
	t.Helper()
	wait(t, g, now, ids[0])
	g.Enter(ids[1], now)
	require.False(t, g.Unschedulable(ids[1], "no room", now))
	a := g.Act(now)
	require.NotNil(t, a.Rollback)
	require.Equal(t, ids[1], a.Rollback.Member)
	require.Equal(t, 1, a.Rollback.Rejected)
	g.Unreserved(ids[0], now)
	return a.Rollback
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	g, ids := newGang(2, 2)
	now := start
	for _, want := range []time.Duration{1, 2, 4, 8, 8, 8} {
		r := failRound(t, g, ids, now)
		require.Equal(t, want*time.Second, r.Backoff)
		requireRefuses(t, g, ids[0], now, gang.ReasonBackoff, "no room")
		a := g.Act(now)
		require.Empty(t, a.Activate)
		require.Equal(t, now.Add(r.Backoff), a.Next)

		now = now.Add(r.Backoff)
		require.ElementsMatch(t, ids, g.Act(now).Activate)
		requireAdmits(t, g, ids[0], now)
	}
	wait(t, g, now, ids...)
	require.Len(t, g.Release(ids, now), 2)
	for _, id := range ids {
		g.Bound(id, now)
	}
	for _, id := range ids {
		g.DeletePod(id, now)
	}
	ids = []types.UID{"n0", "n1"}
	for _, id := range ids {
		g.SetPod(id, gang.Pod{}, now)
	}
	require.Equal(t, time.Second, failRound(t, g, ids, now).Backoff, "a whole gang starts anew")
}

func TestJitterTakesUpToHalf(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{0: time.Second, 0.5: 750 * time.Millisecond, 0.999999999: 500 * time.Millisecond} {
		c := config
		c.Jitter = func() float64 { return jitter }
		g := gang.New(c)
		g.SetGroup(gang.Spec{UID: "g", MinMember: 2}, start)
		ids := uids(2)
		for _, id := range ids {
			g.SetPod(id, gang.Pod{}, start)
		}
		require.InDelta(t, want, failRound(t, g, ids, start).Backoff, float64(time.Microsecond))
	}
}

func TestRoomEndsABackoff(t *testing.T) {
	g, ids := newGang(2, 2)
	failRound(t, g, ids, start)
	g.Room(after(50))
	require.Equal(t, after(200), g.Act(after(50)).Next, "not sooner than the pause after the rollback")
	require.ElementsMatch(t, ids, g.Act(after(200)).Activate)
}

func TestRoomInABackoffThatIsOldIsUsedAtOnce(t *testing.T) {
	g, ids := newGang(2, 2)
	failRound(t, g, ids, start)
	g.Room(after(700))
	require.ElementsMatch(t, ids, g.Act(after(700)).Activate)
}

func TestRoomDuringTheRoundShortensTheBackoff(t *testing.T) {
	g, ids := newGang(2, 2)
	wait(t, g, after(10), ids[0])
	g.Room(after(20))
	g.Enter(ids[1], after(20))
	g.Unschedulable(ids[1], "no room", after(30))
	require.Equal(t, after(230), func() time.Time { g.Act(after(30)); g.Unreserved(ids[0], after(30)); return g.Act(after(30)).Next }())
}

// TestHasteGrows: in a busy cluster room is made all the time, and must not make a gang that does not
// fit try all the time.
func TestHasteGrows(t *testing.T) {
	g, ids := newGang(2, 2)
	now := start
	for _, want := range []time.Duration{200, 400, 800, 1600, 3200, 3200} {
		failRound(t, g, ids, now)
		g.Room(now.Add(time.Millisecond))
		next := g.Act(now.Add(time.Millisecond)).Next
		require.Equal(t, want*time.Millisecond, next.Sub(now))
		now = next
	}
	failRound(t, g, ids, now)
	now = now.Add(8 * time.Second) // a backoff that room did not end
	g.Act(now)
	failRound(t, g, ids, now)
	g.Room(now)
	require.Equal(t, 200*time.Millisecond, g.Act(now).Next.Sub(now))
}

func TestRoomDoesNotCureARefusal(t *testing.T) {
	g, ids := newGang(2, 2)
	wait(t, g, start, ids[0])
	g.Unreserved(ids[0], start)
	require.Equal(t, gang.Backoff, g.Phase())
	g.Room(after(500))
	requireRefuses(t, g, ids[0], after(600), gang.ReasonBackoff, "refused")
	requireAdmits(t, g, ids[0], after(1000))
}

func TestOtherMembersAndAnotherSpecEndABackoff(t *testing.T) {
	g, ids := newGang(2, 2)
	failRound(t, g, ids, start)
	g.SetPod("new", gang.Pod{}, after(10))
	requireRefuses(t, g, ids[0], after(199), gang.ReasonBackoff, "")
	requireAdmits(t, g, ids[0], after(200))

	g, ids = newGang(2, 2)
	failRound(t, g, ids, start)
	g.SetGroup(gang.Spec{UID: "g", MinMember: 1}, after(10))
	requireAdmits(t, g, ids[0], after(10))
}

func TestDeadline(t *testing.T) {
	g := gang.New(config)
	g.SetGroup(gang.Spec{UID: "g", MinMember: 3, Timeout: 5 * time.Second}, start)
	ids := uids(3)
	for _, id := range ids {
		g.SetPod(id, gang.Pod{}, start)
	}
	for i, id := range ids[:2] {
		now := after(1000 * i)
		g.Enter(id, now)
		waits, deadline, _, _ := g.Fits(id, now)
		require.True(t, waits)
		require.Equal(t, after(5000), deadline, "counted from the first waiting member")
	}
	g.Enter(ids[2], after(1000))
	require.Equal(t, after(5000), g.Act(after(4000)).Next)
	require.Equal(t, gang.Waiting, g.Phase())
	a := g.Act(after(5000))
	require.Equal(t, gang.Backoff, g.Phase())
	require.Equal(t, "2 of 3 members had a node after 5s", a.Rollback.Detail)
	require.ElementsMatch(t, ids[:2], a.Reject)
}

// TestActionsAreRepeated: the framework adds a waiting pod only after Permit has returned, and a pod in
// flight cannot be activated, so that no single call is enough.
func TestActionsAreRepeated(t *testing.T) {
	t.Run("reject", func(t *testing.T) {
		g, ids := newGang(3, 3)
		wait(t, g, start, ids[0])
		g.Enter(ids[1], start)
		g.Unschedulable(ids[1], "no room", start)
		for _, ms := range []int{0, 5, 15, 35, 75} {
			require.Empty(t, g.Act(after(ms-1)).Reject)
			a := g.Act(after(ms))
			require.Equal(t, ids[:1], a.Reject)
			require.True(t, a.Next.After(after(ms)))
		}
		for range 100 {
			a := g.Act(after(76))
			require.False(t, a.Next.IsZero())
			require.LessOrEqual(t, a.Next.Sub(after(76)), time.Second, "and never given up")
		}
		g.Unreserved(ids[0], after(80))
		require.Empty(t, g.Act(after(900)).Reject)
	})
	t.Run("probe", func(t *testing.T) {
		g, ids := newGang(2, 2)
		wait(t, g, start, ids...)
		for _, ms := range []int{0, 5, 15, 35} {
			require.Empty(t, g.Act(after(ms-1)).Probe)
			a := g.Act(after(ms))
			require.ElementsMatch(t, ids, a.Probe)
			require.True(t, a.Next.After(after(ms)))
		}
	})
	t.Run("activate", func(t *testing.T) {
		g := gang.New(config)
		g.SetGroup(gang.Spec{UID: "g", MinMember: 2}, start)
		ids := uids(2)
		for _, id := range ids {
			g.SetPod(id, gang.Pod{}, start)
		}
		require.ElementsMatch(t, ids, g.Act(start).Activate)
		g.Enter(ids[0], after(1))
		require.Equal(t, ids[1:], g.Act(after(5)).Activate, "until it is seen in a cycle")
		now, times := after(5), 0
		for !g.Act(now).Next.IsZero() {
			now = g.Act(now).Next
			times += len(g.Act(now).Activate)
		}
		require.Equal(t, 14, times, "and given up in the end: it may be in the queue already")
		require.InDelta(t, 10*time.Second, now.Sub(start), float64(3*time.Second))
	})
}

// TestWordsOfABackoff do not change with the time: they become a condition of the pods, and each change would be a write.
func TestWordsOfABackoff(t *testing.T) {
	g, ids := newGang(2, 2)
	failRound(t, g, ids, start)
	_, before := g.Blocked(start)
	_, later := g.Blocked(after(400))
	require.Equal(t, "no room", before, "as the member that found no room says it")
	require.Equal(t, before, later)
}
