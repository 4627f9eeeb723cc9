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
	now := time.Unix(1000, 0)
	g := gang.New(gang.Config{
		Native: true, Timeout: time.Minute, PrepareTimeout: 24 * time.Hour, RecoveryTimeout: 24 * time.Hour, InitialBackoff: time.Second, MaxBackoff: 4 * time.Second, Jitter: func() float64 { return 0 },
	})
	g.SetGroup(gang.Spec{UID: "group", MinMember: 3}, now)
	for _, uid := range []types.UID{"a", "b", "c"} {
		g.SetPod(uid, gang.Pod{}, now)
		requireEnqueued(t, g, uid, now)
	}
	return g, now
}

func requireEnqueued(t *testing.T, g *gang.Gang, uid types.UID, now time.Time) {
	t.Helper()
	reason, detail, _ := g.Enqueue(uid, now)
	require.Empty(t, reason, "pod %s may enter the queue: %s", uid, detail)
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

// TestNativeGateOpensInTwoSteps: after a rollback the queue is closed until the last member is back in it.
func TestNativeGateOpensInTwoSteps(t *testing.T) {
	g, now := native(t)
	requireWaits(t, g, "a", now)
	requireWaits(t, g, "b", now)
	g.Unreserved("c", now) // another plugin refuses it
	require.Equal(t, gang.Backoff, g.Phase())
	requireKept(t, g, "c", now)
	_, reason, _ := g.Permit("c", "node", now)
	require.Equal(t, gang.ReasonBackoff, reason, "no member takes a node of a round that has failed")

	now = now.Add(time.Second / 5)
	require.ElementsMatch(t, []types.UID{"a", "b"}, g.Act(now).Reject)
	g.Unreserved("a", now)
	requireKept(t, g, "a", now)
	now = now.Add(time.Minute)
	require.Empty(t, g.Act(now).Activate, "b has not given back its node")
	g.Unreserved("b", now)

	first := g.Act(now)
	require.Equal(t, []types.UID{"a"}, first.Activate, "kube-scheduler is to ask for those that are back")
	requireKept(t, g, "a", now)
	requireKept(t, g, "c", now)
	now = first.Next
	first = g.Act(now)
	require.Equal(t, []types.UID{"a"}, first.Activate, "b is not back yet")
	requireKept(t, g, "a", now)
	requireKept(t, g, "b", now)
	requireKept(t, g, "c", now)

	now = first.Next
	require.Equal(t, []types.UID{"a"}, g.Act(now).Activate)
	for _, uid := range []types.UID{"a", "b", "c"} {
		requireEnqueued(t, g, uid, now)
	}
	require.Empty(t, g.Act(now.Add(time.Minute)).Activate)
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
	requireEnqueued(t, g, "d", now)
	require.Empty(t, g.Act(now.Add(time.Minute)).Activate, "once is enough")
}

// TestNativeBindsThatFail: a member whose bind fails keeps its node for the next attempt, and waits for a second each
// time: kube-scheduler has no backoff for it.
func TestNativeBindsThatFail(t *testing.T) {
	g, now := native(t)
	for _, uid := range []types.UID{"a", "b", "c"} {
		requireWaits(t, g, uid, now)
	}
	require.Len(t, g.Release([]types.UID{"a", "b", "c"}, now), 3)
	require.Empty(t, g.Arrive("a", now))
	require.Empty(t, g.Arrive("b", now))
	g.Commit(g.Arrive("c", now), nil, now)
	g.Bound("a", now)
	g.Bound("b", now)
	for _, kept := range []string{"node", "", "", ""} {
		g.Unreserved("c", now)
		require.Equal(t, []types.UID{"c"}, g.Act(now).BindFailed)
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
		requireEnqueued(t, g, "c", now)
		wait, reason, _ := g.Permit("c", "node", now)
		require.False(t, wait, "it depends on no other member")
		require.Empty(t, reason)
		g.Commit(g.Arrive("c", now), nil, now)
	}
	g.Bound("c", now)
	require.Equal(t, gang.Whole, g.Phase())
}
