package reservecache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/apis/v1alpha1"
)

// TestAGuaranteeDoesNotErode: what a small owner leaves of its slot is not for others, so that the slot has its room for the next one.
func TestAGuaranteeDoesNotErode(t *testing.T) {
	c := startCluster(t, binds)
	c.smallNode(t, "n1", "a", "4", nil)
	c.reservations.apply(reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) {
		r.Spec.Mode = v1alpha1.ModeGuarantee
		r.Spec.Slot.Requests["cpu"] = *cpus("2")
	}))
	c.reservations.requireSlots(t, "r", 1, 0)
	c.pod(t, "small", "web", "500m", nil)
	c.bound(t, "small")
	c.reservations.requireSlots(t, "r", 1, 1)
	for i := range 2 {
		c.pod(t, fmt.Sprintf("batch-%d", i), "batch", "1", nil)
		c.bound(t, fmt.Sprintf("batch-%d", i))
	}
	c.pod(t, "late", "batch", "1", nil)
	require.Contains(t, c.refused(t, "late"), "held for ZoneReservation r")
	c.deletePod(t, "small")
	c.pod(t, "large", "web", "2", nil)
	require.Equal(t, "n1", c.bound(t, "large"))
	c.reservations.requireSlots(t, "r", 1, 1)
}
