package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// askMembers asks the members of a group whether they may enter the queue, up to the first that may not.
func (w *world) askMembers(u *unit) {
	for _, p := range u.members {
		if !w.ask(u, p) {
			return
		}
	}
}

// allBack reports whether a group may be placed: its gang is asked in the cycle.
func (w *world) allBack(u *unit) bool { return w.gang(u.gang).AllBack(len(u.members)) }

// TestNativeCycleWaitsForAll: after a rollback the queue is closed until the last member has given back its node, and a
// cycle that lacks one ends before a member is tried.
func TestNativeCycleWaitsForAll(t *testing.T) {
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
	require.Equal(t, []types.UID{"a"}, first.Activate)
	requireEnqueued(t, g, "a", now)
	require.False(t, g.AllBack(2), "b is not back yet")
	requireKept(t, g, "a", now)

	now = g.Act(now).Next
	require.Equal(t, []types.UID{"a"}, g.Act(now).Activate)
	for _, uid := range []types.UID{"a", "b", "c"} {
		requireEnqueued(t, g, uid, now)
	}
	require.True(t, g.AllBack(3))
	require.True(t, g.AllBack(2), "once all have been there, a cycle needs no more than GangScheduling asks for")
	require.Empty(t, g.Act(now.Add(time.Minute)).Activate)
}

// TestNativeCycleDoesNotWaitForEver: another plugin may keep a member from its cycle.
func TestNativeCycleDoesNotWaitForEver(t *testing.T) {
	g, now := native(t)
	requireWaits(t, g, "a", now)
	g.Unreserved("c", now)
	g.Unreserved("a", now)
	now = now.Add(time.Minute)
	start := now
	for g.Act(now); !g.AllBack(2); {
		now = g.Act(now).Next
		g.Act(now)
	}
	require.Less(t, now.Sub(start), 15*time.Second)
}
