package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// native returns a native gang of pods a, b and c, which has all of them for its quorum.
func native(t *testing.T) (*gang.Gang, time.Time) {
	t.Helper()
	c := config
	c.Native = true
	g, now := gang.New(c), start
	g.SetGroup(gang.Spec{UID: "group", MinMember: 3}, now)
	for _, uid := range []types.UID{"a", "b", "c"} {
		g.SetPod(uid, gang.Pod{}, now)
		requireAdmits(t, g, uid, now)
	}
	return g, now
}

func requireKept(t *testing.T, g *gang.Gang, uid types.UID, now time.Time) {
	t.Helper()
	reason, _, _ := g.Enqueue(uid, now)
	require.Equal(t, gang.ReasonBackoff, reason, "pod %s may not enter the queue", uid)
}

func requireWaits(t *testing.T, g *gang.Gang, uid types.UID, now time.Time) {
	t.Helper()
	wait, reason, detail := g.Permit(uid, "node", now)
	require.Empty(t, reason, detail)
	require.True(t, wait, "pod %s waits in Permit", uid)
}

// TestNativeGangComesBackSoon: when the backoff is over, the members are placed again within a second, however
// kube-scheduler's queue asks them.
func TestNativeGangComesBackSoon(t *testing.T) {
	for members := 2; members <= 5; members++ {
		w := newWorld(t, 10, func() float64 { return 0 })
		w.config.Native = true
		w.setGroup("g", &gang.Spec{UID: "group", MinMember: members})
		for range members {
			w.createPod("g", false)
		}
		for deliver(&w.plugin) || deliver(&w.sched) {
		}
		require.True(t, w.pop())
		for range members - 1 {
			require.True(t, w.fit(fine) && w.list())
		}
		require.True(t, w.fit(lateRefusal), "another plugin refuses the last member")
		g := w.gang("g")
		require.Equal(t, gang.Backoff, g.Phase())
		over := g.RetryAt()
		require.True(t, w.run(time.Minute, func() bool { return g.Phase() == gang.Whole }))
		require.Less(t, w.now.Sub(over), time.Second, "%d members, after the backoff", members)
	}
}

// TestPodThatIsKeptOutBeforeItIsAMember: the gate opens while no member is known that it could ask for.
func TestPodThatIsKeptOutBeforeItIsAMember(t *testing.T) {
	g, now := native(t)
	requireWaits(t, g, "a", now)
	g.Unreserved("c", now)
	requireKept(t, g, "d", now) // its event has come to the queue first
	now = now.Add(time.Minute)
	g.Act(now)
	g.Unreserved("a", now)
	for _, uid := range []types.UID{"a", "b", "c"} {
		g.DeletePod(uid, now)
	}
	for range 10 {
		now = now.Add(time.Minute)
		require.Empty(t, g.Act(now).Activate)
	}
	g.SetPod("d", gang.Pod{}, now)
	require.Equal(t, []types.UID{"d"}, g.Act(now).Activate)
	requireAdmits(t, g, "d", now)
	require.Empty(t, g.Act(now.Add(time.Minute)).Activate, "once is enough")
}

// beginBinds has a, b and c come to their binds.
func beginBinds(t *testing.T, g *gang.Gang, now time.Time) {
	t.Helper()
	for _, uid := range []types.UID{"a", "b", "c"} {
		requireWaits(t, g, uid, now)
	}
	require.Len(t, g.Release([]types.UID{"a", "b", "c"}, now), 3)
	require.Empty(t, g.Arrive("a", now))
	require.Empty(t, g.Arrive("b", now))
	g.Commit(g.Arrive("c", now), nil, now)
}

// TestNativeBindsThatFail: a member whose bind fails keeps its node for the next attempt, and waits for a second each
// time: kube-scheduler has no backoff for it.
func TestNativeBindsThatFail(t *testing.T) {
	g, now := native(t)
	beginBinds(t, g, now)
	g.Bound("a", now)
	g.Bound("b", now)
	for _, kept := range []string{"node", "", "", ""} {
		g.Unreserved("c", now)
		require.True(t, g.Act(now).BindFailed)
		require.Equal(t, kept, g.KeptNode("c"))
		requireKept(t, g, "c", now)
		g.Act(now)
		require.Equal(t, now.Add(time.Second), g.Act(now).Next, "the queue is closed for so long")
		now = now.Add(time.Second)
		for g.Closed() {
			require.Equal(t, []types.UID{"c"}, g.Act(now).Activate)
			g.Enqueue("c", now)
			now = now.Add(10 * time.Millisecond)
		}
		requireAdmits(t, g, "c", now)
		wait, reason, _ := g.Permit("c", "node", now)
		require.False(t, wait, "it depends on no other member")
		require.Empty(t, reason)
		g.Commit(g.Arrive("c", now), nil, now)
	}
	g.Bound("c", now)
	require.Equal(t, gang.Whole, g.Phase())
}

// TestAllNativeBindsFail: the gang backs off for longer and longer, as its next cycle may fail as soon.
func TestAllNativeBindsFail(t *testing.T) {
	g, now := native(t)
	for _, backoff := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second} {
		beginBinds(t, g, now)
		for _, uid := range []types.UID{"a", "b", "c"} {
			require.NotEqual(t, gang.Backoff, g.Phase(), "the others may still be bound")
			g.Unreserved(uid, now)
			requireKept(t, g, uid, now)
		}
		require.Equal(t, gang.Backoff, g.Phase())
		require.Equal(t, now.Add(backoff), g.RetryAt())
		for now = g.RetryAt(); g.Closed(); now = now.Add(10 * time.Millisecond) {
			require.Equal(t, []types.UID{"a"}, g.Act(now).Activate)
			for _, uid := range []types.UID{"a", "b", "c"} {
				g.Enqueue(uid, now)
			}
		}
	}
}
