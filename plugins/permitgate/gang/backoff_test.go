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
	full(t, g, now, ids[1])
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
		require.Empty(t, g.Act(now).Activate, "it waits to be admitted")
		require.Equal(t, gang.Queued, g.Phase())
	}
	wait(t, g, now, ids...)
	require.Len(t, g.Release(ids, now), 2)
	require.Equal(t, gang.CauseUnschedulable, g.LastRollback().Cause)
	for _, id := range ids {
		g.Bound(id, now)
	}
	require.Zero(t, g.LastRollback(), "it is whole")
	for _, id := range ids {
		g.DeletePod(id, now)
	}
	ids = []types.UID{"n0", "n1"}
	for _, id := range ids {
		g.SetPod(id, gang.Pod{}, now)
	}
	require.Equal(t, time.Second, failRound(t, g, ids, now).Backoff, "after a whole gang it starts over")
}

func TestJitterTakesUpToHalf(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{0: time.Second, 0.5: 750 * time.Millisecond, 0.999999999: 500 * time.Millisecond} {
		c := config
		c.Jitter = func() float64 { return jitter }
		g, ids := newGangOf(c, 2, 2)
		require.InDelta(t, want, failRound(t, g, ids, start).Backoff, float64(time.Microsecond))
	}
}

// TestBackoffMakesUpForRounds that had none of their own, in a minute at most; room ends it as any other.
func TestBackoffMakesUpForRounds(t *testing.T) {
	for rounds, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 3: 3 * time.Second, 1000: time.Minute} {
		g, _ := newGang(2, 2)
		require.True(t, g.Admit(start))
		g.Refuse(gang.Rollback{Cause: gang.CauseUnschedulable, Rounds: rounds}, 0, 0, start)
		require.Equal(t, want, g.LastRollback().Backoff)
		g.RoomFreed(after(1))
		require.Equal(t, gang.Queued, g.Phase())
	}
}

// TestRoomEndsABackoff at once, or after its pause, when the gang was refused without a round, and otherwise not before
// ten times as long as the round took.
func TestRoomEndsABackoff(t *testing.T) {
	g, _ := newGang(2, 2)
	require.True(t, g.Admit(start))
	g.Refuse(gang.Rollback{Cause: gang.CauseNoRoom, Detail: "at most 1 of 2 fit", Reason: "no room for 2 at once"}, 0, time.Minute, start)
	requireRefuses(t, g, "m0", start, gang.ReasonBackoff, "no room for 2 at once")
	require.Equal(t, after(60_000), g.Act(after(1)).Next)
	g.RoomFreed(after(1))
	require.Equal(t, gang.Queued, g.Phase())

	g, _ = newGang(2, 2)
	require.True(t, g.Admit(start))
	g.Refuse(gang.Rollback{Cause: gang.CauseNoRoom}, 100*time.Millisecond, 0, start)
	g.RoomFreed(after(1))
	require.Equal(t, after(100), g.Act(after(1)).Next)
	require.Equal(t, gang.Backoff, g.Phase(), "its pause is not over")
	g.Act(after(100))
	require.Equal(t, gang.Queued, g.Phase())

	g, ids := newGang(2, 2)
	wait(t, g, start, ids[0])
	full(t, g, after(30), ids[1])
	g.Unreserved(ids[0], after(30))
	g.RoomFreed(after(40))
	g.Act(after(40))
	require.Equal(t, after(330), g.Act(after(40)).Next)
	require.Equal(t, gang.Backoff, g.Phase())
	g.Act(after(330))
	require.Equal(t, gang.Queued, g.Phase())
}

func TestRoomDuringTheRoundShortensTheBackoff(t *testing.T) {
	g, ids := newGang(2, 2)
	wait(t, g, after(10), ids[0])
	g.RoomFreed(after(20))
	full(t, g, after(30), ids[1])
	g.Act(after(30))
	g.Unreserved(ids[0], after(30))
	require.Equal(t, after(230), g.Act(after(30)).Next, "ten times the 20 ms that it took")
}

func TestRoomDoesNotCureARefusal(t *testing.T) {
	g, ids := newGang(2, 2)
	wait(t, g, start, ids[0])
	g.Unreserved(ids[0], start)
	require.Equal(t, gang.Backoff, g.Phase())
	g.RoomFreed(after(500))
	requireRefuses(t, g, ids[0], after(600), gang.ReasonBackoff, "refused")
	g.Act(after(1000))
	require.Equal(t, gang.Queued, g.Phase())
}

func TestOtherMembersAndAnotherSpecEndABackoff(t *testing.T) {
	for name, change := range map[string]func(g *gang.Gang){
		"a new member":        func(g *gang.Gang) { g.SetPod("new", gang.Pod{}, after(10)) },
		"a lower quorum":      func(g *gang.Gang) { g.SetGroup(gang.Spec{UID: "g", MinMember: 2, Timeout: 1}, after(10)) },
		"another annotation":  func(g *gang.Gang) { g.SetGroup(gang.Spec{UID: "g", MinMember: 2, Revision: "rack"}, after(10)) },
		"what else may count": func(g *gang.Gang) { g.Changed(after(10)) },
	} {
		t.Run(name, func(t *testing.T) {
			g, ids := newGang(2, 2)
			failRound(t, g, ids, start)
			change(g)
			require.Equal(t, gang.Queued, g.Phase())
		})
	}
}

func TestDeadline(t *testing.T) {
	g, ids := newGang(3, 3)
	g.SetGroup(gang.Spec{UID: "g", MinMember: 3, Timeout: 5 * time.Second}, start)
	gather(t, g, start)
	for i, id := range ids[:2] {
		wait(t, g, after(1000*(i+1)), id)
	}
	for _, ms := range []int{2000, 3900, 5800} {
		enter(t, g, after(ms), ids[2])
	}
	require.Equal(t, after(6000), g.Act(after(5800)).Next, "counted from the first waiting member")
	require.Equal(t, gang.Waiting, g.Phase())
	a := g.Act(after(6000))
	require.Equal(t, gang.Backoff, g.Phase())
	require.Equal(t, "2 of 3 members had a node after 5s", a.Rollback.Detail)
	require.ElementsMatch(t, ids[:2], a.Reject)
}

// TestRoundEndsWithoutProgress: members do not wait for one that does not come while others have cycles, or for long.
// The cycle of a member may take longer, and where no cycle begins the scheduler is busy or idle.
func TestRoundEndsWithoutProgress(t *testing.T) {
	for name, tt := range map[string]struct {
		cycles int64 // of others
		enters bool  // the member is in a cycle
		ends   int
	}{
		"others have cycles":         {cycles: 20, ends: 3_000},
		"few cycles of others":       {cycles: 19, ends: 16_000},
		"the scheduler is idle":      {ends: 16_000},
		"the member is in its cycle": {cycles: 1000, enters: true, ends: 16_000},
	} {
		t.Run(name, func(t *testing.T) {
			cycles := int64(0)
			c := config
			c.Cycles = func() int64 { return cycles }
			g, ids := newGangOf(c, 3, 3)
			gather(t, g, start)
			wait(t, g, after(1000), ids[0], ids[1])
			if tt.enters {
				enter(t, g, after(1000), ids[2])
			}
			cycles = tt.cycles
			require.False(t, g.Act(after(1100)).Next.After(after(3000)))
			g.Act(after(tt.ends - 1))
			require.Equal(t, gang.Waiting, g.Phase())
			a := g.Act(after(tt.ends))
			require.Equal(t, gang.Backoff, g.Phase())
			require.Equal(t, gang.CauseTimeout, a.Rollback.Cause)
			require.Equal(t, ids[2], a.Rollback.Member)
			require.Contains(t, a.Rollback.Detail, "has not come to a scheduling cycle; 2 of 3 members had a node, and no other came for")
		})
	}
}

// TestNodeIsLost: members that have been given a node that is gone have lost it, whether they wait or are at the
// barrier. The gang waits for ten times as long as they held something, and for no longer.
func TestNodeIsLost(t *testing.T) {
	for name, released := range map[string]bool{"waiting": false, "at the barrier": true} {
		t.Run(name, func(t *testing.T) {
			g, ids := gathering(t, 3, 3)
			wait(t, g, start, ids[:2]...)
			if released {
				wait(t, g, start, ids[2])
				require.Len(t, g.Release(ids, after(1)), 3)
				g.Arrive(ids[0], after(2))
			}
			g.LoseNode("another", after(10))
			require.Zero(t, g.Act(after(10)).Rollback)
			g.LoseNode("node", after(10))
			a := g.Act(after(1000))
			require.NotNil(t, a.Rollback)
			require.Contains(t, a.Rollback.Detail, "the node node is gone")
			require.Subset(t, a.Reject, ids[:2])
			if released {
				arrival, _ := g.ArrivalOf(ids[0])
				require.Equal(t, gang.ArrivalRefused, arrival)
			}
			for _, id := range ids {
				g.Unreserved(id, after(10))
			}
			require.Equal(t, after(110), g.RetryAt(), "ten times the 10 ms, and no backoff beside that")
		})
	}
}

// TestCyclesWithoutAResult end the round of a member that was let into the queue three times, or came to a cycle and
// was let in again, and have the others wait for it no longer.
func TestCyclesWithoutAResult(t *testing.T) {
	enqueue := func(t *testing.T, g *gang.Gang, id types.UID, now time.Time, want gang.Reason, wantFailed bool) {
		t.Helper()
		reason, detail, failed := g.Enqueue(id, now)
		require.Equal(t, want, reason, detail)
		require.Equal(t, wantFailed, failed)
	}
	t.Run("before PreFilter", func(t *testing.T) {
		g, ids := gathering(t, 3, 3)
		wait(t, g, start, ids[0])
		enqueue(t, g, ids[2], after(1), gang.ReasonNone, false)
		enqueue(t, g, ids[2], after(2), gang.ReasonNone, false)
		enqueue(t, g, ids[2], after(3), gang.ReasonNone, true)
		a := g.Act(after(3))
		require.Equal(t, gang.CauseCycleFailed, a.Rollback.Cause)
		requireRefuses(t, g, ids[1], after(3), gang.ReasonBackoff, a.Rollback.Detail)
	})
	t.Run("after PreFilter", func(t *testing.T) {
		g, ids := gathering(t, 3, 3)
		enqueue(t, g, ids[2], after(1), gang.ReasonNone, false)
		enter(t, g, after(2), ids[2])
		g.Act(after(2))
		require.Contains(t, g.Act(after(1002)).Activate, ids[2], "in case its cycle has ended")
		enqueue(t, g, ids[2], after(1003), gang.ReasonBackoff, true)
		require.Equal(t, gang.CauseCycleFailed, g.LastRollback().Cause)
	})
	t.Run("with a result in between", func(t *testing.T) {
		g, ids := gathering(t, 2, 3)
		for ms := range 4 {
			enqueue(t, g, ids[2], after(10*ms), gang.ReasonNone, false)
			enter(t, g, after(10*ms+1), ids[2])
			g.Unschedulable(ids[2], true, "no room", "no room", after(10*ms+2))
		}
	})
	t.Run("of a scout", func(t *testing.T) {
		g, ids := newGang(2, 2)
		require.True(t, g.Admit(start))
		scout := g.Act(start).Activate[0]
		require.Contains(t, ids, scout)
		enqueue(t, g, scout, after(1), gang.ReasonNone, false)
		enqueue(t, g, scout, after(2), gang.ReasonNone, false)
		enqueue(t, g, scout, after(3), gang.ReasonNone, true)
		require.Equal(t, gang.Backoff, g.Phase())
	})
	t.Run("of one that is not needed", func(t *testing.T) {
		g, ids := gathering(t, 2, 3)
		enqueue(t, g, ids[2], after(1), gang.ReasonNone, false)
		enqueue(t, g, ids[2], after(2), gang.ReasonNone, false)
		enqueue(t, g, ids[2], after(3), gang.ReasonNone, true)
		wait(t, g, after(4), ids[0], ids[1])
		require.Equal(t, gang.Waiting, g.Phase())
	})
}

// TestLongRoundsHaveLongPauses: a gang that loses its rounds holds what it does not use for a tenth of the time,
// however long they are. But as long as members take steps, a round may be long and be lost because the scheduler is
// busy, so the first ones cost less.
func TestLongRoundsHaveLongPauses(t *testing.T) {
	const round = 53 * time.Second
	for name, lose := range map[string]func(g *gang.Gang, ids []types.UID, now time.Time){
		"no node is left for the last member": func(g *gang.Gang, ids []types.UID, now time.Time) {
			full(t, g, now, ids[len(ids)-1])
		},
		"a waiting member is preempted": func(g *gang.Gang, ids []types.UID, now time.Time) { g.Unreserved(ids[0], now) },
	} {
		t.Run(name, func(t *testing.T) {
			const members = 500
			g, ids := newGang(members, members)
			now := start
			for lost, want := range []time.Duration{8, 16, 32, 64, 128, 256, 512, 530, 530} {
				for i, id := range ids[:members-1] {
					wait(t, g, now.Add(round*time.Duration(i)/members), id)
				}
				now = now.Add(round)
				lose(g, ids, now)
				require.Equal(t, gang.Backoff, g.Phase())
				for _, id := range ids[:members-1] {
					g.Unreserved(id, now)
				}
				g.RoomFreed(now)
				end := now.Add(want * time.Second)
				require.WithinDuration(t, end, g.RetryAt(), 10*time.Second/members, "after %d lost rounds of %s", lost+1, round)
				now = g.RetryAt()
				g.Act(now)
				require.Equal(t, gang.Queued, g.Phase())
			}
			wait(t, g, now, ids...)
			require.Len(t, g.Release(ids, now), members)
			for _, id := range ids {
				g.Bound(id, now)
			}
			g.DeletePod(ids[0], now)
			g.DeletePod(ids[1], now)
			g.SetPod("a", gang.Pod{}, now)
			g.SetPod("b", gang.Pod{}, now)
			wait(t, g, now, "a")
			full(t, g, now.Add(round), "b")
			require.Equal(t, now.Add(round+8*time.Second), g.RetryAt(), "after a whole gang it starts over")
		})
	}
	t.Run("no member takes a step", func(t *testing.T) {
		g, ids := newGang(2, 2)
		wait(t, g, start, ids...) // and another plugin keeps them in Permit
		a := g.Act(after(60_000))
		require.Equal(t, gang.CauseTimeout, a.Rollback.Cause)
		require.Equal(t, 600*time.Second, a.Rollback.Backoff)
		for _, id := range ids {
			g.Unreserved(id, after(60_000))
		}
		g.RoomFreed(after(61_000))
		g.Act(after(659_999))
		require.Equal(t, gang.Backoff, g.Phase())
		g.SetPod("another", gang.Pod{}, after(300_000))
		g.Act(after(300_000))
		require.Equal(t, gang.Queued, g.Phase(), "it is not the same gang any more")
	})
}

// TestActionsAreRepeated: the framework adds a waiting pod only after Permit has returned, and a pod in
// flight cannot be activated, so that no single call is enough.
func TestActionsAreRepeated(t *testing.T) {
	t.Run("reject", func(t *testing.T) {
		g, ids := newGang(3, 3)
		wait(t, g, start, ids[0])
		full(t, g, start, ids[1])
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
		g, ids := gathering(t, 2, 2)
		require.ElementsMatch(t, ids, g.Act(start).Activate)
		enter(t, g, after(1), ids[0])
		require.Equal(t, ids[1:], g.Act(after(5)).Activate, "until it is seen in a cycle")
		now, times := after(5), 0
		for {
			a := g.Act(now)
			if a.Next.IsZero() || a.Next.After(after(30_000)) {
				break
			}
			now = a.Next
			for _, id := range a.Activate {
				if id == ids[1] {
					times++
				}
			}
		}
		require.Equal(t, 14, times, "and given up in the end: it may be in the queue already")
	})
}

// TestWordsOfABackoff do not change with the time: they become a condition of the pods, and each change would be a
// write.
func TestWordsOfABackoff(t *testing.T) {
	g, ids := newGang(2, 2)
	failRound(t, g, ids, start)
	_, before := g.BlockedBy()
	g.Settle(after(400))
	_, later := g.BlockedBy()
	require.Equal(t, "no room", before, "as the member that found no room says it")
	require.Equal(t, before, later)
}
