package karpenter

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// TestKarpenterAndReservations: with buy, nodes are bought for slots that lack room, those with nothing but slots stay,
// and pods that slots keep out have nodes of their own.
func TestKarpenterAndReservations(t *testing.T) {
	c := start(t)
	t.Run("not bought", func(t *testing.T) { c.in(t).testSlotsNotBought() })
	t.Run("bought", func(t *testing.T) { c.in(t).testSlotsBought() })
}

// reserve makes a reservation of a slot in each of three zones, of not quite half a node: maxHeldFraction allows no
// more where a zone has one node.
func (c *cluster) reserve(buy *v1alpha1.Buy) {
	c.t.Helper()
	c.Make(c.t, &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: "failover"}, Spec: v1alpha1.ZoneReservationSpec{
		Owners: []v1alpha1.ReservationOwner{{Namespace: namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
		Slot:   v1alpha1.ReservationSlot{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1900m")}},
		Zones:  []v1alpha1.ReservationZone{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}, {Name: "c", Slots: 1}}, SlotsPerNode: ptr.To[int32](1),
		Buy: buy,
	}})
}

// waitHeld waits until so many slots are held, and until the reservation says whether these are all.
func (c *cluster) waitHeld(n int64, ready metav1.ConditionStatus) {
	c.t.Helper()
	r := &v1alpha1.ZoneReservation{}
	c.until("slots are held", func() (bool, error) {
		err := c.Get(c.t.Context(), client.ObjectKey{Name: "failover"}, r)
		return r.Status.Slots.Held == n && meta.IsStatusConditionPresentAndEqual(r.Status.Conditions, v1alpha1.ConditionReady, ready), err
	})
}

// testSlotsNotBought: no node is bought for a slot. Pods fit into held room as Karpenter sees it, also on a node that
// was bought for one and that a slot lacked, and a node with nothing but a slot is empty.
func (c *cluster) testSlotsNotBought() {
	c.reserve(nil)
	c.waitHeld(2, metav1.ConditionFalse)
	c.deploy("stranger", 1, "3")
	c.waitFits("stranger", 1)
	require.Empty(c.t, c.bought())
	c.remove("stranger")

	// A node that is bought for a pod is the slot's, and the pod waits: Karpenter believes that it fits there.
	c.deploy("large", 1, "3950m", inZone("c"))
	c.waitHeld(3, metav1.ConditionTrue)
	c.waitStays(&c.boughtNodes()[0], "DisruptionBlocked", "nominated for a pending pod")
	require.Equal(c.t, "waiting 1", c.running("large"))
	require.Equal(c.t, "c 1", c.bought())
	c.remove("large")
	c.waitHeld(2, metav1.ConditionFalse)

	c.deploy("other", 1, "500m", inZone("c"))
	c.waitRunning("other", "c 1")
	c.remove("other")
	c.waitHeld(3, metav1.ConditionTrue)
	c.waitRemoved(&c.boughtNodes()[0], "Empty")
	c.waitHeld(2, metav1.ConditionFalse)
}

// testSlotsBought: nodes are bought for the missing slot, for a pod that needs a whole node, and for one that would fit
// into held room. One stays for the slot when the pods are gone.
func (c *cluster) testSlotsBought() {
	c.deploy("large", 1, "3950m", inZone("c"))
	c.reserve(&v1alpha1.Buy{Namespace: "capacity-buffers", Max: 10})
	c.waitRunning("large", "c 1")
	c.waitHeld(3, metav1.ConditionTrue)
	c.waitBought("c 2")

	c.deploy("stranger", 1, "3", inZone("c"))
	c.waitRunning("stranger", "c 1")
	c.waitHeld(3, metav1.ConditionTrue)
	require.Equal(c.t, "c 3", c.bought())

	// Of nodes that are alike as Karpenter sees it one stays. If it is not the one with the slot, the slot moves.
	c.remove("large")
	c.remove("stranger")
	c.waitBought("c 1")
	c.waitHeld(3, metav1.ConditionTrue)
	c.waitStays(&c.boughtNodes()[0], "Unconsolidatable", "has buffer pods")
	c.waitHeld(3, metav1.ConditionTrue)
}
