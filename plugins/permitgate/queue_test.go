package permitgate

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/build"
)

func gangNamed(name string) gangID {
	return gangID{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

// TestGangsTakeTurns: one gang at a time by priority and age, but none waits for one of a lower priority; one whose
// scout does not come holds up the others for a moment only.
func TestGangsTakeTurns(t *testing.T) {
	q := newQueueTest(t)
	q.update("young", 0, 1, fresh)
	q.update("old", 0, 100, fresh)
	q.next(0, "old", 250)
	q.next(1, "", 250)
	q.update("urgent", 9, 0, fresh)
	q.next(1, "urgent", 251)
	q.queue.update(q.turn("old", 0, 100, fresh), true) // it is still queued
	q.remove("urgent")
	q.next(2, "", 250)
	q.remove("old") // it was proposed
	q.next(3, "young", 253)
	q.update("young", 0, 1, fresh) // it was refused, and changed at once
	q.next(4, "young", 254)
	q.remove("young")

	// A scout that does not come.
	q.update("stuck", 9, 100, fresh)
	q.update("young", 0, 1, fresh)
	q.next(10, "stuck", 260)
	q.next(259, "", 260)
	q.next(260, "young", 510)
	q.remove("stuck")
	q.remove("young")

	// One that has no turn yet holds up nobody.
	later := q.turn("later", 9, 100, fresh)
	later.earliest = q.after(1100)
	q.queue.update(later, false)
	q.update("young", 0, 1, fresh)
	q.next(1000, "young", 1100)
	q.next(1001, "", 1100)
	q.next(1100, "later", 1350)
	q.remove("later")
	q.remove("young")
	require.Empty(t, q.queue.turns)
	require.Empty(t, q.queue.ready)
	require.Empty(t, q.queue.admitted)
}

// TestFreedRoomIsLookedAtInTurn: looks at gangs that do not fit take a tenth of the time of gangs of their priority and
// of lower ones, in the order of rank. A gang whose own backoff is over does not wait for its turn, but leaves what has
// become free to those of a higher priority for a moment.
func TestFreedRoomIsLookedAtInTurn(t *testing.T) {
	q := newQueueTest(t)
	look := func(ms int, name string, priority int32, took time.Duration) {
		t.Helper()
		q.next(ms, name, ms+250)
		q.queue.rest(priority, took, q.after(ms))
		q.remove(name)
	}
	q.update("old", 0, 100, 30_000)
	q.update("young", 0, 1, 30_000)
	look(0, "old", 0, 0)
	q.next(1, "", 10) // ten times the least that a look costs
	q.update("old", 0, 100, 30_000)
	look(10, "old", 0, 20*time.Millisecond)
	q.next(11, "", 210)
	q.update("urgent", 9, 0, 30_000)
	look(11, "urgent", 9, 0) // which is above those that rest
	q.update("urgent", 9, 0, 30_000)
	q.next(12, "", 21)
	look(21, "urgent", 9, time.Hour)
	q.next(22, "", 30_000)
	q.update("new", 0, 0, fresh)
	look(23, "new", 0, 0) // the first look is free
	q.update("urgent", 9, 0, 60_000)
	q.next(30_000, "", 31_000)
	look(31_000, "young", 0, 0)
	q.next(31_001, "", 60_000)
	q.next(60_000, "urgent", 60_250)
}

// fresh says that a gang does not wait for its turn.
const fresh = -1

// queueTest is a queue of gangs and its clock.
type queueTest struct {
	t     *testing.T
	queue *gangQueue
}

func newQueueTest(t *testing.T) *queueTest {
	t.Helper()
	return &queueTest{t, newGangQueue()}
}

func (q *queueTest) after(ms int) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

func (q *queueTest) turn(name string, priority int32, age, latest int) turn {
	waits := turn{Rank: podgroup.Rank{Priority: priority, Created: q.after(-age), ID: gangNamed(name)}}
	if latest != fresh {
		waits.latest = q.after(latest)
	}
	return waits
}

func (q *queueTest) update(name string, priority int32, age, latest int) {
	q.queue.update(q.turn(name, priority, age, latest), false)
}

func (q *queueTest) remove(name string) { q.queue.remove(gangNamed(name)) }

// next requires which gang is next, and when the queue is to be asked again.
func (q *queueTest) next(ms int, want string, wantAgain int) {
	q.t.Helper()
	id, found, again := q.queue.next(q.after(ms))
	require.Equal(q.t, want, id.Name)
	require.Equal(q.t, want != "", found)
	require.Equal(q.t, q.after(wantAgain), again)
}

// TestSearchPauses: a gang that no eviction helps searches for victims less and less often.
func TestSearchPauses(t *testing.T) {
	const took = 20 * time.Millisecond
	for failed, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		require.Equal(t, want, searchPause(took, failed+1))
	}
	require.Equal(t, time.Minute, searchPause(took, 1000))
	require.Equal(t, 100*time.Second, searchPause(2*time.Second, 3))
}

// TestPreemptorsFollow: pods that preempt alone are tried again when kube-scheduler has heard of freed room, too.
func TestPreemptorsFollow(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	r := newGangs(clocktesting.NewFakeClock(start)).freed
	take := func(now time.Time, wantRoom, wantPreemptors bool, wantAgain time.Time) {
		t.Helper()
		room, preemptors, again := r.take(now)
		require.Equal(t, wantRoom, room)
		require.Equal(t, wantPreemptors, preemptors)
		require.Equal(t, wantAgain, again)
	}
	take(start, false, false, time.Time{})
	r.note()
	r.notePreemptors()
	take(start, true, false, start.Add(catchUpPause))
	take(start.Add(catchUpPause), false, true, time.Time{})
	take(start.Add(time.Second), false, false, time.Time{})
}

// refusedGangs are gangs of two that lack room, with priorities that fall from gang to gang.
func refusedGangs(tb testing.TB, clock *clocktesting.FakeClock, n int) *gangs {
	tb.Helper()
	g := newGangs(clock)
	g.config = gang.Config{Timeout: time.Minute, InitialBackoff: time.Hour, MaxBackoff: time.Hour, Jitter: func() float64 { return 0 }}
	for i := range n {
		priority := int32(n - i)
		g.change(gangNamed(fmt.Sprint("gang-", i)), func(e *gangEntry, now time.Time) {
			e.gang.SetGroup(gang.Spec{MinMember: 2}, now)
			for k := range 2 {
				pod := build.Pod(fmt.Sprintf("gang-%d-%d", i, k), "1", build.Namespace("default"))
				pod.Spec.Priority = &priority
				e.add(pod.UID, &member{pod: pod})
				e.gang.SetPod(pod.UID, gang.Pod{}, now)
			}
		})
	}
	return g
}

// TestOnlyOpenGangsAreGoneThrough for a look or for freed room: neither PodGroups that never get a member nor gangs
// that run, of which there may be any number.
func TestOnlyOpenGangsAreGoneThrough(t *testing.T) {
	g := refusedGangs(t, clocktesting.NewFakeClock(time.Unix(1_000_000, 0)), 3)
	for i := range 5 {
		g.change(gangNamed(fmt.Sprint("idle-", i)), func(e *gangEntry, now time.Time) { e.gang.SetGroup(gang.Spec{MinMember: 2}, now) })
	}
	require.Len(t, g.open, 3)
	require.Equal(t, 3, g.countRefusedLocked())
	g.update(gangNamed("gang-0"), func(e *gangEntry, now time.Time) {
		for uid := range e.pods {
			e.gang.SetPod(uid, gang.Pod{Bound: true}, now)
		}
	})
	require.Len(t, g.open, 2, "a gang runs")
	g.update(gangNamed("gang-1"), func(e *gangEntry, now time.Time) {
		e.gang.Admit(now)
		e.gang.Refuse(gang.Rollback{Cause: gang.CauseNoRoom}, 0, time.Minute, now)
	})
	require.Len(t, g.open, 2, "one that was refused waits for room")
}

// BenchmarkRefusedGangs is what it takes to decide which gang is looked at next, of many that lack room, where some
// becomes free all the time. An operation is one decision, a millisecond after the one before.
func BenchmarkRefusedGangs(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
			g := refusedGangs(b, clock, n)
			for b.Loop() {
				g.admitNext()
				clock.Step(time.Millisecond)
				for id := range maps.Clone(g.queue.admitted) {
					g.update(id, func(e *gangEntry, now time.Time) {
						e.woken = false
						e.gang.Refuse(gang.Rollback{Cause: gang.CauseNoRoom}, 0, time.Duration(g.countRefusedLocked())*lookCost, now)
						g.restLocked(e, 0, now)
						g.wakeLocked(e, now)
					})
				}
			}
		})
	}
}
