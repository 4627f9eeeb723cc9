package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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

// hardSpread spreads the pods of an app over the zones that they can run in.
func hardSpread(app string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, NodeTaintsPolicy: ptr.To(v1.NodeInclusionPolicyHonor),
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}
}

// surge creates a pod of the service's next revision, and waits until it has a node.
func (c *cluster) surge(name string) {
	c.t.Helper()
	c.pod(name, "web", "1", func(p *v1.Pod) {
		hardSpread("web")(p)
		// As pod-template-hash does for Deployments, so that a surge is not held up by the old revision.
		p.Labels["revision"] = "2"
		p.Spec.TopologySpreadConstraints[0].MatchLabelKeys = []string{"revision"}
	})
	c.waitNode(name)
}

// TestTheOldestIsFilledFirst: freed room goes to reservations by their age, and to no pod that waits.
func TestTheOldestIsFilledFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "3", nil)
		for i := range 3 {
			c.pod(fmt.Sprintf("old-%d", i), "batch", "1", nil)
			c.waitNode(fmt.Sprintf("old-%d", i))
		}
		for i, name := range []string{"younger", "older"} {
			c.reservations.apply(reservation(name, name, 1, func(r *v1alpha1.ZoneReservation) {
				r.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Duration(i) * time.Hour).Truncate(time.Second))
			}))
			// Room that becomes free before the scheduler knows of the reservation is any pod's.
			c.requireCondition(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
		}
		c.pod("waiting", "batch", "1", nil)
		c.refused("waiting")
		c.delete("old-0")
		c.requireSlots("older", 1, 0)
		c.requireSlots("younger", 0, 0)
		c.delete("old-1")
		c.requireSlots("younger", 1, 0)
		require.Empty(t, c.nodeOf("waiting"))
		c.delete("old-2")
		c.waitNode("waiting")
	})
}

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
