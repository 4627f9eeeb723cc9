package framework

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/plugins/permitgate/native"
)

// TestNativeMembersBeyondTheQuorum: those that are placed in the same cycle are bound with the others; those that are
// left over do not send the gang back, and are bound when room appears.
func TestNativeMembersBeyondTheQuorum(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 3)
		c.maxBackoff = 1000
		c.start(withArgs(guarded))
		c.createPodGroup("n", 2)
		c.create(member("", "blocker"))
		c.requireBound("blocker")
		c.createNativeMembers("n", 3)
		c.soon(func() bool { return len(c.bound("n-")) == 2 })
		c.pass(20 * time.Second) // far into a backoff of 16s
		c.requireGroupCondition("n", native.ConditionReleased, "True", "2 members")

		c.delete("blocker")
		require.Less(t, c.requireBound("n-0", "n-1", "n-2"), time.Second)
		c.requireGroupCondition("n", native.ConditionReleased, "True", "2 members")
	})
}

// TestNativeGangThatAKilledSchedulerLeaves bound in part: the next one binds the rest around those that are bound.
func TestNativeGangThatAKilledSchedulerLeaves(t *testing.T) {
	for name, args := range map[string]string{"Guard": guarded, "GangScheduling alone": alone} {
		nativeBubble(t, name, func(t *testing.T) {
			c := newGangCluster(t, 2, 2)
			c.createPodGroup("n", 4)
			first := nativeMember("n", "n-1")
			first.Spec.NodeName = "node-1"
			c.create(first, nativeMember("n", "n-0"), nativeMember("n", "n-2"), nativeMember("n", "n-3"))
			c.start(withArgs(args))
			c.requireBound("n-0", "n-2", "n-3")
			require.Equal(t, "node-1", c.bound("n-1")["n-1"])
		})
	}
}
