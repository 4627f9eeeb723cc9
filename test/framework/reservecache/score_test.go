package reservecache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeldRoomDrawsNobody: a pod that may take held room, because of its priority, goes where room is free, although the node with the held
// room has fewer pods.
func TestHeldRoomDrawsNobody(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "4", nil)
	c.reservations.apply(reservation("r", "web", 3, nil))
	c.reservations.requireSlots(t, "r", 3, 0)
	c.smallNode(t, "n2", "a", "4", nil)
	c.pod(t, "there", "batch", "2", nil)
	require.Equal(t, "n2", c.bound(t, "there"))
	c.pod(t, "high", "batch", "2", priority(10))
	require.Equal(t, "n2", c.bound(t, "high"))
	c.reservations.requireSlots(t, "r", 3, 0)
	// Where nothing else is free, it takes held room.
	c.pod(t, "next", "batch", "2", priority(10))
	require.Equal(t, "n1", c.bound(t, "next"))
}
