package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"zonewise.dev/apis/v1alpha1"
)

// onNodes wants amounts of CPU, given as pairs of a node and an amount.
func onNodes(pairs ...string) func(*v1alpha1.ZoneReservationSpec) {
	return func(s *v1alpha1.ZoneReservationSpec) {
		s.Slot = v1alpha1.ReservationSlot{}
		for i := 0; i < len(pairs); i += 2 {
			s.Nodes = append(s.Nodes, v1alpha1.ReservationNode{
				Name: pairs[i], Amount: v1.ResourceList{v1.ResourceCPU: resource.MustParse(pairs[i+1])}, Pods: 2,
			})
		}
	}
}

// waitAmounts waits until so much CPU is held and used.
func (w *reservationWorld) waitAmounts(r *v1alpha1.ZoneReservation, held, used string) {
	w.t.Helper()
	w.waitReservation(r, held+" held, "+used+" used", func(s *v1alpha1.ZoneReservationStatus) bool {
		return s.Amounts.Held.Cpu().Equal(resource.MustParse(held)) && s.Amounts.Used.Cpu().Equal(resource.MustParse(used))
	})
}

// TestReservationOfAmounts: amounts are held on the nodes that the reservation names. Strangers are kept out, owners of different size use what
// they lack, and a new scheduler knows of it. The amounts follow the spec, whatever is used.
func TestReservationOfAmounts(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1", "b1")
	r := w.reserve("survive", onNodes("a1", "3", "b1", "1"))
	first := w.startScheduler()
	w.waitReservation(r, "all is held", isReady)
	out := w.waitBoundOf(4, "survive", w.create(newPods(6, "batch", "1")...))
	w.assertInvariants()

	large, small := owners(1, "large", "2", onNode("a1")), owners(1, "small", "500m", onNode("a1"))
	w.waitBound(w.create(append(large, small...)...)...)
	w.waitAmounts(r, "4", "2500m")
	w.waitReservation(r, "both are named", func(s *v1alpha1.ZoneReservationStatus) bool {
		return len(s.Zones[0].Nodes) == 1 && len(s.Zones[0].Nodes[0].Amounts.Consumers) == 2
	})
	w.stopScheduler(first)

	w.startScheduler()
	w.waitUnschedulable("survive", w.create(newPod("late", "1"))...)
	w.waitAmounts(r, "4", "2500m")
	w.requirePending(out...)

	// What is no longer wanted is free at once, save what is used.
	w.patchReservation(r, `{"spec": {"nodes": [{"name": "a1", "amount": {"cpu": "2"}, "pods": 2}]}}`)
	w.eventually("one of those that were kept out goes on", func() (bool, string) { n := w.boundOf(out); return n == 1, fmt.Sprint(n) })
	w.waitAmounts(r, "2500m", "2500m")
	w.patchReservation(r, `{"spec": {"nodes": [{"name": "a1", "amount": {"cpu": "3"}, "pods": 2}]}}`)
	w.waitAmounts(r, "3", "2500m")
	w.deletePod(large[0])
	w.waitAmounts(r, "3", "500m")
	w.waitReservation(r, "all is held", isReady)
	require.Equal(t, 1, w.boundOf(out))
	w.assertInvariants()
}
