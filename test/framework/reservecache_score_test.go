package framework

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeldRoomDrawsNobody: a pod that may take held room, because of its priority, goes where room is free, although
// the node with the held room has fewer pods.
func TestHeldRoomDrawsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "4", nil)
		c.reservations.apply(reservation("r", "web", 3, nil))
		c.requireSlots("r", 3, 0)
		c.smallNode("n2", "a", "4", nil)
		c.pod("there", "batch", "2", nil)
		require.Equal(t, "n2", c.waitNode("there"))
		c.pod("high", "batch", "2", priority(10))
		require.Equal(t, "n2", c.waitNode("high"))
		c.requireSlots("r", 3, 0)
		// Where nothing else is free, it takes held room.
		c.pod("next", "batch", "2", priority(10))
		require.Equal(t, "n1", c.waitNode("next"))
	})
}
