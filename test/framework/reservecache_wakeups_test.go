package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// TestOwnersThatMayNowRunAreWoken: whoever changes a reservation so that its owners may run wakes those that wait.
func TestOwnersThatMayNowRunAreWoken(t *testing.T) {
	required := func(change func(*v1alpha1.ZoneReservation)) *v1alpha1.ZoneReservation {
		return reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) {
			r.Spec.OwnerPolicy = v1alpha1.OwnerRequired
			r.Spec.Slot.NodeSelector = map[string]string{"pool": "x"}
			change(r)
		})
	}
	unchanged := func(*v1alpha1.ZoneReservation) {}
	for name, relax := range map[string]func(*reservationAPI){
		"deleted": func(api *reservationAPI) { api.delete("r") },
		"expired": func(api *reservationAPI) {
			api.apply(required(func(r *v1alpha1.ZoneReservation) { r.Spec.TTL = &metav1.Duration{Duration: time.Millisecond} }))
		},
		"of others": func(api *reservationAPI) {
			api.apply(required(func(r *v1alpha1.ZoneReservation) { r.Spec.Owners[0].PodSelector.MatchLabels["app"] = "shop" }))
		},
		"preferred": func(api *reservationAPI) {
			api.apply(required(func(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = v1alpha1.OwnerPreferred }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startHoldCluster(t)
				c.smallNode("n1", "a", "1", func(n *v1.Node) { n.Labels["pool"] = "x" })
				c.smallNode("n2", "a", "1", nil)
				c.reservations.apply(required(unchanged))
				c.requireSlots("r", 1, 0)
				c.pod("first", "web", "1", nil)
				require.Equal(t, "n1", c.waitNode("first"))
				c.pod("second", "web", "1", nil)
				c.refused("second")
				relax(c.reservations)
				require.Equal(t, "n2", c.waitNode("second"))
			})
		})
	}
}

// TestOnePreemptionMakesRoom: the room that it makes is the preemptor's, and not that of a reservation of a higher
// priority which lacks slots. Else the pod would evict on, and never run.
func TestOnePreemptionMakesRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		for i := range 3 {
			c.smallNode(fmt.Sprintf("n%d", i), "a", "4", nil)
			c.pod(fmt.Sprintf("low-%d", i), "batch", "4", nil)
			c.waitNode(fmt.Sprintf("low-%d", i))
		}
		c.reservations.apply(reservation("r", "web", 3, func(r *v1alpha1.ZoneReservation) {
			r.Spec.Slot.Requests[v1.ResourceCPU] = *cpus("4")
			r.Spec.Priority = new(int32)
			*r.Spec.Priority = 1000
		}))
		c.requireCondition("r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
		c.pod("high", "batch", "4", priority(500))
		c.waitNode("high")
		c.quiet()
		require.Len(t, c.listPods(""), 3, "one of four was evicted")
		c.requireSlots("r", 0, 0)
	})
}
