package framework

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestPolicyOfAnotherNamespace: a policy that forbids every zone binds the pods of its own namespace alone.
func TestPolicyOfAnotherNamespace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("4", "a1", "b1")
		forbidding := func(s *v1alpha1.ZoneSpreadPolicySpec) { s.DefaultWeight = ptr.To[int32](0) }
		policy := newPolicy(forbidding)
		policy.Namespace = "mallory"
		c.policies.Put(policy)
		c.start()
		c.createPods(newPod("victim", "1"))
		c.waitBound("victim", 1)

		c.policies.Put(newPolicy(forbidding))
		c.createPods(newPod("own", "1"))
		c.waitReason("policy default/web")
	})
}

// TestLabelsOfAnOwnerOfAnotherNamespace: who gives his pods the labels of an owner gets none of the room that is held
// for the owner's namespace.
func TestLabelsOfAnOwnerOfAnotherNamespace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "2", nil)
		c.reservations.apply(reservation("shop-failover", "web", 2, func(r *v1alpha1.ZoneReservation) { r.Spec.Owners[0].Namespace = "shop" }))
		c.requireSlots("shop-failover", 2, 0)
		c.pod("dressed", "web", "1", nil)
		require.Contains(t, c.refused("dressed"), "held for ZoneReservation shop-failover")
		c.requireSlots("shop-failover", 2, 0)
	})
}
