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

// TestGangsTakeTurns: one gang at a time by priority and age, but none waits for one of a lower priority; one whose scout
// does not come holds up the others for a moment only, and one that yields holds up none.
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

// TestPauses: looks at gangs of a priority that are refused take a tenth of the time at most, however many there are, gathers in vain
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
