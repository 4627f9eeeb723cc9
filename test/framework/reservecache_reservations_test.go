package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

func TestOthersAreKeptOffAndOwnersLetIn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "4", nil)
		c.reservations.apply(reservation("shop-failover", "web", 2, nil))
		c.requireSlots("shop-failover", 2, 0)

		for i := range 2 {
			c.pod(fmt.Sprintf("batch-%d", i), "batch", "1", nil)
			c.waitNode(fmt.Sprintf("batch-%d", i))
		}
		c.pod("late", "batch", "1", nil)
		require.Contains(t, c.refused("late"), "held for ZoneReservation shop-failover")
		c.pod("web-0", "web", "1", nil)
		require.Equal(t, "n1", c.waitNode("web-0"))
		c.requireSlots("shop-failover", 1, 0)
		c.requireCondition("shop-failover", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)

		// The room of an owner that leaves is the reservation's.
		c.delete("web-0")
		c.requireSlots("shop-failover", 2, 0)
		c.requireCondition("shop-failover", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
		require.Empty(t, c.nodeOf("late"))

		// What is held is free at once when the reservation goes.
		c.reservations.delete("shop-failover")
		require.Equal(t, "n1", c.waitNode("late"))
		c.requireSettled()
	})
}

func TestAChangedReservationTakesEffectAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "2", nil)
		c.reservations.apply(reservation("r", "web", 2, nil))
		c.requireSlots("r", 2, 0)
		c.pod("p", "batch", "1", nil)
		c.refused("p")
		c.reservations.apply(reservation("r", "web", 1, nil))
		c.waitNode("p")
		c.requireSlots("r", 1, 0)

		// A pod that becomes an owner is let in.
		c.pod("q", "batch", "1", nil)
		c.refused("q")
		c.reservations.apply(reservation("r", "batch", 1, nil))
		c.waitNode("q")
	})
}

func TestHeadroomIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		for i := range 3 {
			c.smallNode(fmt.Sprintf("n%d", i), string(rune('a'+i)), "2500m", nil)
		}
		c.reservations.apply(reservation("r", "web", 3, nil))
		c.requireSlots("r", 3, 0)
		for i := range 3 {
			name := fmt.Sprintf("web-%d", i)
			c.pod(name, "web", "1", nil)
			c.waitNode(name)
		}
		c.requireSlots("r", 3, 0)
		c.pod("web-3", "web", "1", nil)
		c.waitNode("web-3")
		c.requireSlots("r", 2, 0)

		// What becomes free goes to the headroom.
		c.delete("web-0")
		c.requireSlots("r", 3, 0)
		c.requireSettled()
	})
}

// TestPreemptionEvictsNobodyInVain: to evict the pod beside a slot would not help a pod that the slot keeps out.
func TestPreemptionEvictsNobodyInVain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "2", nil)
		protection := int32(1000)
		c.reservations.apply(reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Priority = &protection }))
		c.requireSlots("r", 1, 0)
		c.pod("small", "batch", "1", nil)
		c.waitNode("small")
		c.pod("large", "batch", "2", priority(10))
		c.refused("large")
		c.pod("middle", "batch", "1", priority(10))
		// An eviction that ends while its preemptor is still in its cycle sends the preemptor into its backoff.
		c.eventually("middle is bound", func() bool { return c.nodeOf("middle") != "" })
		require.Equal(t, "n1", c.nodeOf("middle"), "in the place of a pod of a lower priority")
		c.requireSlots("r", 1, 0)
		_, err := c.client.CoreV1().Pods("default").Get(t.Context(), "small", metav1.GetOptions{})
		require.Error(t, err)
		require.Empty(t, c.nodeOf("large"))
	})
}
