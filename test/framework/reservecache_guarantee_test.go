package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/apis/v1alpha1"
)

// TestAGuaranteeDoesNotErode: what a small owner leaves of its slot is not for others, so that the slot has its room for the next one.
func TestAGuaranteeDoesNotErode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "4", nil)
		c.reservations.apply(reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) {
			r.Spec.Mode = v1alpha1.ModeGuarantee
			r.Spec.Slot.Requests["cpu"] = *cpus("2")
		}))
		c.requireSlots("r", 1, 0)
		c.pod("small", "web", "500m", nil)
		c.waitNode("small")
		c.requireSlots("r", 1, 1)
		for i := range 2 {
			c.pod(fmt.Sprintf("batch-%d", i), "batch", "1", nil)
			c.waitNode(fmt.Sprintf("batch-%d", i))
		}
		c.pod("late", "batch", "1", nil)
		require.Contains(t, c.refused("late"), "held for ZoneReservation r")
		c.delete("small")
		c.pod("large", "web", "2", nil)
		require.Equal(t, "n1", c.waitNode("large"))
		c.requireSlots("r", 1, 1)
	})
}
