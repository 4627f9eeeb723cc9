package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
)

// onNodes holds amounts of CPU, given as pairs of a node and an amount.
func onNodes(pairs ...string) func(*v1alpha1.ZoneReservation) {
	return func(r *v1alpha1.ZoneReservation) {
		r.Spec.Slots, r.Spec.Slot, r.Spec.Nodes = nil, v1alpha1.ReservationSlot{}, nil
		for i := 0; i < len(pairs); i += 2 {
			r.Spec.Nodes = append(r.Spec.Nodes, v1alpha1.ReservationNode{Name: pairs[i], Amount: v1.ResourceList{v1.ResourceCPU: *cpus(pairs[i+1])}, Pods: 3})
		}
	}
}

// requireHeld waits until so many thousandths of a CPU are held on a node.
func (c *cluster) requireHeld(node string, held int64) {
	c.t.Helper()
	c.soonEqual(held, func() any {
		status := c.shared.Holds().StatusOn("uid-r", node)
		return status.Amount.MilliCPU
	})
}

// TestAmounts: owners of different size find the free room of the cluster first, and then go where an amount is held. Filter, preemption,
// restarts and changes of the spec see the same.
func TestAmounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "4", nil)
		c.smallNode("n2", "b", "2", nil)
		r := reservation("r", "web", 0, onNodes("n1", "3", "n2", "1"))
		c.reservations.apply(r)
		c.requireCondition("r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
		for i := range 3 {
			c.pod(fmt.Sprintf("batch-%d", i), "batch", "1", nil)
		}
		c.soonEqual(1, func() any { return c.zonesOfApp("batch")[""] })
		c.requireHeld("n1", 3000)

		c.pod("large", "web", "2500m", nil)
		require.Equal(t, "n1", c.waitNode("large"))
		c.pod("small", "web", "700m", nil)
		require.Equal(t, "n2", c.waitNode("small"))
		c.requireHeld("n1", 3000)
		c.requireHeld("n2", 1000)
		c.pod("stranger", "batch", "300m", nil)
		require.Contains(t, c.refused("stranger"), "held for ZoneReservation r")
		// A pod of a higher priority takes what is left, and a system pod anything.
		c.pod("higher", "batch", "400m", priority(1))
		require.Equal(t, "n1", c.waitNode("higher"))
		c.requireHeld("n1", 2600)
		c.requireCondition("r", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonOvercommitted)

		c.requireSlots("r", 6, 2)
		c.restart()
		c.requireHeld("n1", 2600)
		c.delete("higher")
		c.requireHeld("n1", 3000)
		require.Contains(t, c.refused("stranger"), "held for ZoneReservation r")

		// What is wanted may change while owners use it.
		onNodes("n1", "1")(r)
		c.reservations.apply(r)
		c.requireHeld("n1", 1000)
		c.requireHeld("n2", 0)
		c.waitNode("stranger")
		c.delete("small")
		c.delete("large")
		c.requireHeld("n1", 1000)
		require.Empty(t, c.shared.Drift().Nodes)
		require.Equal(t, ledger.Resources{MilliCPU: 1000, Pods: 3}, c.shared.Holds().StatusOn("uid-r", "n1").Amount)
	})
}

// TestOwnersLeaveLargePieces: an owner takes the amount that it fits most tightly, although the node of the larger one has more free room, and
// leaves the larger one to a larger pod.
func TestOwnersLeaveLargePieces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "4", nil)
		c.smallNode("n2", "b", "2", nil)
		c.smallNode("n3", "c", "2", nil)
		c.reservations.apply(reservation("r", "web", 0, onNodes("n1", "3", "n2", "1", "n3", "2")))
		c.requireCondition("r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
		for i := range 2 {
			c.pod(fmt.Sprintf("batch-%d", i), "batch", "1", nil)
			c.waitNode(fmt.Sprintf("batch-%d", i))
		}
		for _, pod := range []struct{ name, cpu, node string }{{"small", "700m", "n2"}, {"middle", "1200m", "n3"}, {"large", "2500m", "n1"}} {
			c.pod(pod.name, "web", pod.cpu, nil)
			require.Equal(t, pod.node, c.waitNode(pod.name), pod.name)
		}
	})
}
