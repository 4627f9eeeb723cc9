package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/plugins/permitgate/podgroup"
)

func gangNamed(name string) gangID {
	return gangID{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

// TestGangsTakeTurns: one gang of each priority at a time, the oldest first; one whose scout does not come holds up the
// others for a moment only.
func TestGangsTakeTurns(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	after := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	of := func(name string, priority int32, age int) podgroup.Rank {
		return podgroup.Rank{Priority: priority, Created: after(-age), ID: gangNamed(name)}
	}
	queue := newGangQueue()
	queue.update(of("young", 0, 1), false)
	queue.update(of("old", 0, 100), false)
	queue.update(of("urgent", 9, 0), false)
	next := func(ms int, want ...string) {
		t.Helper()
		keys, _ := queue.next(after(ms))
		var names []string
		for _, k := range keys {
			names = append(names, k.Name)
		}
		require.ElementsMatch(t, want, names)
	}
	next(0, "old", "urgent")
	_, again := queue.next(after(1))
	require.Equal(t, after(250), again)
	next(1)
	queue.update(of("old", 0, 100), true) // it is still queued
	next(2)
	queue.remove(gangNamed("old")) // it was proposed
	next(3, "young")
	queue.update(of("young", 0, 1), false) // it was refused, and changed at once
	next(4, "young")
	queue.remove(gangNamed("young"))
	queue.remove(gangNamed("urgent"))

	// A scout that does not come.
	queue.update(of("stuck", 0, 100), false)
	queue.update(of("young", 0, 1), false)
	next(10, "stuck")
	next(259)
	next(260, "young")
	queue.remove(gangNamed("stuck"))
	queue.remove(gangNamed("young"))
	require.Empty(t, queue.ranks)
	require.Empty(t, queue.lines)
}

// TestPauses: looks at gangs that are refused take a tenth of the time at most, however many there are, gathers in vain
// another one, and searches for victims a fiftieth.
func TestPauses(t *testing.T) {
	for _, tt := range []struct {
		took                     time.Duration
		gangs                    int
		looks, searches, gathers time.Duration
	}{
		{0, 0, 100 * time.Millisecond, 0, 0},
		{20 * time.Millisecond, 1, 200 * time.Millisecond, time.Second, 200 * time.Millisecond},
		{20 * time.Millisecond, 20, 4 * time.Second, 20 * time.Second, 4 * time.Second},
		{20 * time.Millisecond, 1000, time.Minute, 10 * time.Minute, time.Minute},
		{time.Minute, 1000, time.Minute, 50 * time.Minute, time.Minute},
	} {
		require.Equal(t, tt.looks, lookPause(tt.took, tt.gangs), "looks of %s, %d gangs", tt.took, tt.gangs)
		require.Equal(t, tt.searches, searchPause(tt.took, tt.gangs), "searches of %s, %d gangs", tt.took, tt.gangs)
		pause, idle := gatherPauses(tt.took, tt.gangs)
		require.Equal(t, tt.gathers, pause, "gathers of %s, %d gangs", tt.took, tt.gangs)
		require.Equal(t, min(10*tt.gathers, lookAtMost), idle, "gathers of %s, %d gangs, if nothing happens", tt.took, tt.gangs)
	}
}

// TestRoomIsNoticedTwice, since kube-scheduler may hear of it later, and gangs are not woken by what they have given
// back themselves.
func TestRoomIsNoticedTwice(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	clock := clocktesting.NewFakeClock(start)
	a, b := gangNamed("a"), gangNamed("b")
	r := newGangs(clock).freed
	room, _, _, again := r.take(start)
	require.True(t, room.empty())
	require.Zero(t, again)

	r.note(a)
	room, _, _, again = r.take(start)
	require.False(t, room.concerns(a))
	require.True(t, room.concerns(b))
	require.Equal(t, start.Add(freedAgain), again)

	r.note(noGang)
	r.notePreemptors()
	half := start.Add(freedAgain / 2)
	room, _, preemptors, again := r.take(half)
	require.True(t, room.concerns(a))
	require.False(t, preemptors)
	require.Equal(t, start.Add(freedAgain), again, "a stream of events does not put it off")

	room, _, preemptors, again = r.take(again)
	require.False(t, room.concerns(a), "what came later is not old enough")
	require.True(t, room.concerns(b))
	require.False(t, preemptors)
	require.Equal(t, start.Add(2*freedAgain), again)
	room, _, preemptors, again = r.take(again)
	require.True(t, room.concerns(a))
	require.True(t, preemptors)
	require.Zero(t, again)
	room, _, _, _ = r.take(start.Add(time.Second))
	require.True(t, room.empty())
}
