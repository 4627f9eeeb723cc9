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
// scout does not come holds up the others for a moment only, and one that yields holds up none.
func TestGangsTakeTurns(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	after := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	rank := func(name string, priority int32, age int) podgroup.Rank {
		return podgroup.Rank{Priority: priority, Created: after(-age), ID: gangNamed(name)}
	}
	queue := newGangQueue()
	yielding := map[string]time.Time{}
	next := func(ms int, want string, wantAgain int) {
		t.Helper()
		id, found, again := queue.next(after(ms), func(id gangID) time.Time { return yielding[id.Name] })
		require.Equal(t, want, id.Name)
		require.Equal(t, want != "", found)
		require.Equal(t, after(wantAgain), again)
	}
	queue.update(rank("young", 0, 1), false)
	queue.update(rank("old", 0, 100), false)
	next(0, "old", 250)
	next(1, "", 250)
	queue.update(rank("urgent", 9, 0), false)
	next(1, "urgent", 251)
	queue.update(rank("old", 0, 100), true) // it is still queued
	queue.remove(gangNamed("urgent"))
	next(2, "", 250)
	queue.remove(gangNamed("old")) // it was proposed
	next(3, "young", 253)
	queue.update(rank("young", 0, 1), false) // it was refused, and changed at once
	next(4, "young", 254)
	queue.remove(gangNamed("young"))

	// A scout that does not come.
	queue.update(rank("stuck", 9, 100), false)
	queue.update(rank("young", 0, 1), false)
	next(10, "stuck", 260)
	next(259, "", 260)
	next(260, "young", 510)
	queue.remove(gangNamed("stuck"))
	queue.remove(gangNamed("young"))

	// One that leaves what has become free to others.
	queue.update(rank("refused", 9, 100), false)
	queue.update(rank("young", 0, 1), false)
	yielding["refused"] = after(700)
	next(600, "young", 700)
	queue.remove(gangNamed("young"))
	next(601, "", 700)
	delete(yielding, "refused")
	next(700, "refused", 950)
	queue.remove(gangNamed("refused"))
	require.Empty(t, queue.ranks)
	require.Empty(t, queue.ready)
	require.Empty(t, queue.admitted)
}

// TestPauses: looks at gangs of a priority that are refused take a tenth of the time at most, however many there are,
// and so do gathers without success. Searches for victims take a fiftieth.
func TestPauses(t *testing.T) {
	for _, tt := range []struct {
		took            time.Duration
		gangs           int
		looks, searches time.Duration
	}{
		{0, 0, 100 * time.Millisecond, 0},
		{20 * time.Millisecond, 1, 200 * time.Millisecond, time.Second},
		{20 * time.Millisecond, 20, 4 * time.Second, 20 * time.Second},
		{20 * time.Millisecond, 1000, time.Minute, 10 * time.Minute},
		{time.Minute, 1000, time.Minute, 50 * time.Minute},
	} {
		require.Equal(t, tt.looks, lookPause(tt.took, tt.gangs), "looks of %s, %d gangs", tt.took, tt.gangs)
		require.Equal(t, tt.searches, searchPause(tt.took, tt.gangs), "searches of %s, %d gangs", tt.took, tt.gangs)
	}
}

// TestRoomWakesOthers, and not the gang that has given it back. Pods that preempt alone follow when kube-scheduler has
// heard of it, too.
func TestRoomWakesOthers(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	a, b := gangNamed("a"), gangNamed("b")
	r := newGangs(clocktesting.NewFakeClock(start)).freed
	take := func(now time.Time, wantPreemptors bool, wantAgain time.Time) freedBy {
		t.Helper()
		room, preemptors, again := r.take(now)
		require.Equal(t, wantPreemptors, preemptors)
		require.Equal(t, wantAgain, again)
		return room
	}
	room := take(start, false, time.Time{})
	require.True(t, room.empty())

	r.note(a)
	room = take(start, false, time.Time{})
	require.False(t, room.concerns(a))
	require.True(t, room.concerns(b))
	room = take(start, false, time.Time{})
	require.True(t, room.empty())

	r.note(a)
	r.note(noGang)
	r.notePreemptors()
	room = take(start, false, start.Add(preemptorPause))
	require.True(t, room.concerns(a))
	take(start.Add(preemptorPause), true, time.Time{})
	take(start.Add(time.Second), false, time.Time{})
}

// refusedGangs are gangs of two that lack room, with priorities that fall from gang to gang.
func refusedGangs(b *testing.B, clock *clocktesting.FakeClock, n int) *gangs {
	b.Helper()
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
						e.gang.Refuse(gang.Rollback{Cause: gang.CauseNoRoom}, g.pauseLocked(e, 0, now), now)
						g.wakeLocked(e, true, now)
					})
				}
				b.StopTimer() // what the gangs' own times bring about
				g.each(func(e *gangEntry) {
					e.gang.RoomFreed(false, clock.Now())
					g.afterChangeLocked(e)
				})
				b.StartTimer()
			}
		})
	}
}
