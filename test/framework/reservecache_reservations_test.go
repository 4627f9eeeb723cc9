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
		require.Empty(t, c.shared.Comparison().Differences)
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
		require.Empty(t, c.shared.Comparison().Differences)
	})
}

func TestOwnersThatMayRunInTheirSlotsOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "8", nil)
		r := reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = v1alpha1.OwnerRequired })
		c.reservations.apply(r)
		c.requireSlots("r", 1, 0)
		c.pod("web-0", "web", "1", nil)
		c.waitNode("web-0")
		c.pod("web-1", "web", "1", nil)
		require.Contains(t, c.refused("web-1"), "no unused slot of ZoneReservation r")
		c.requireSlots("r", 1, 1)

		// One more slot wakes it.
		*r.Spec.Slots = 2
		c.reservations.apply(r)
		c.waitNode("web-1")
		c.requireSlots("r", 2, 2)
	})
}

// TestASlotWhereSpreadWantsThePod: there is free room, but in the zone that spreading forbids.
func TestASlotWhereSpreadWantsThePod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "8", nil)
		c.smallNode("n2", "b", "1", nil)
		c.reservations.apply(reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) {
			r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "b", Slots: 1}}
		}))
		c.requireSlots("r", 1, 0)
		spread := func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			}}
		}
		c.pod("web-0", "web", "1", spread)
		require.Equal(t, "n1", c.waitNode("web-0"), "free room comes first")
		c.pod("web-1", "web", "1", spread)
		require.Equal(t, "n2", c.waitNode("web-1"), "the only zone that it may go to")
		c.requireSlots("r", 0, 0)
	})
}

func TestPrioritiesAndExemptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "1", nil)
		protection := int32(100)
		r := reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Priority = &protection })
		c.reservations.apply(r)
		c.requireSlots("r", 1, 0)
		c.pod("equal", "batch", "1", priority(100))
		require.Contains(t, c.refused("equal"), "held for ZoneReservation r")
		c.pod("higher", "batch", "1", priority(101))
		c.waitNode("higher")
		c.requireSlots("r", 0, 0)
		c.requireCondition("r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)

		// It comes back to the reservation, and not to the pod that waits.
		c.delete("higher")
		c.requireSlots("r", 1, 0)
		require.Empty(t, c.nodeOf("equal"))

		c.pod("agent", "agent", "1", func(p *v1.Pod) { ofDaemonSet(p); onlyOn(p, "n1") })
		c.waitNode("agent")
		c.delete("agent")
		c.requireSlots("r", 1, 0)
		// Anybody may write an owner reference.
		c.pod("not-pinned", "agent", "1", ofDaemonSet)
		require.Contains(t, c.refused("not-pinned"), "held for ZoneReservation r")
		c.pod("forged", "agent", "1", func(p *v1.Pod) {
			ofDaemonSet(p)
			p.OwnerReferences[0].APIVersion = "example.com/v1"
			onlyOn(p, "n1")
		})
		require.Contains(t, c.refused("forged"), "held for ZoneReservation r")
		critical := *r.DeepCopy()
		highest := int32(1_000_000_000)
		critical.Spec.Priority = &highest
		c.reservations.apply(&critical)
		c.pod("critical", "dns", "1", priority(2_000_000_000))
		c.waitNode("critical")
	})
}

func ofDaemonSet(p *v1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent-set", Controller: ptr.To(true)}}
}

// onlyOn lets a pod run on one node only, as the DaemonSet controller does.
func onlyOn(p *v1.Pod, node string) {
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node}}}}},
	}}}
}

// TestPreemptionFindsTheSlotsOfVictims: a slot that is used by an owner of a lower priority is not lost to one of a higher.
func TestPreemptionFindsTheSlotsOfVictims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "1", nil)
		c.reservations.apply(reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = v1alpha1.OwnerRequired }))
		c.requireSlots("r", 1, 0)
		c.pod("low", "web", "1", nil)
		c.waitNode("low")
		c.requireSlots("r", 1, 1)
		c.pod("high", "web", "1", priority(10))
		require.Equal(t, "n1", c.waitNode("high"))
		c.requireSlots("r", 1, 1)
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

func TestAnExpiredReservationHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "2", nil)
		r := reservation("r", "web", 2, func(r *v1alpha1.ZoneReservation) { r.Spec.TTL = &metav1.Duration{Duration: time.Hour} })
		c.reservations.apply(r)
		c.requireSlots("r", 2, 0)
		c.pod("web", "web", "1", nil)
		c.waitNode("web")
		c.pod("p", "batch", "1", nil)
		c.refused("p")
		r.Spec.TTL.Duration = time.Millisecond
		c.reservations.apply(r)
		c.waitNode("p")
		c.requireCondition("r", v1alpha1.ConditionExpired, metav1.ConditionTrue, v1alpha1.ReasonExpired)
		require.Equal(t, v1alpha1.SlotCounts{}, c.reservations.status("r").Slots)
		require.Equal(t, "n1", c.nodeOf("web"), "nobody is evicted")

		// More time revives it.
		c.delete("p")
		r.Spec.TTL.Duration = time.Hour
		c.reservations.apply(r)
		c.requireCondition("r", v1alpha1.ConditionExpired, metav1.ConditionFalse, v1alpha1.ReasonNotExpired)
		c.requireSlots("r", 1, 0)
	})
}
