package gang_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// askMembers asks the members of a group whether they may enter the queue: all of them, also when one may not.
func (w *world) askMembers(u *unit) {
	for _, p := range u.members {
		w.ask(u, p)
	}
}

// allBack reports whether a group may be placed. If it was kept out, the gate has seen to it that its members are all
// back.
func (w *world) allBack(*unit) bool { return true }

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
		requireAdmits(t, g, uid, now)
	}
	require.Empty(t, g.Act(now.Add(time.Minute)).Activate)
}
