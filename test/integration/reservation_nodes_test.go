package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// TestReservationCRDComesLater: without the CustomResourceDefinition pods are placed as ever; once it is there,
// reservations hold; when it is taken away, and its objects with it, nothing is held any more.
func TestReservationCRDComesLater(t *testing.T) {
	w := newReservationWorldWithout(t)
	w.installCRD(reservationCRD) // so that there is something to take away, whichever test is first
	w.uninstallCRD(reservationCRD)
	w.addNodes("3", "a1")
	w.startScheduler()
	w.waitBound(w.create(newPod("before", "1"))...)

	w.installCRD(reservationCRD)
	r := w.reserve("shop", inZones(2, "a"))
	w.waitReady(r, 2)
	after := w.create(newPod("after", "1"))
	w.waitUnschedulable("shop", after...)

	w.uninstallCRD(reservationCRD)
	w.waitBound(after...)
}

// TestReservationBadInput: what the API server can not know. Each case gets a condition, and nothing else is affected.
func TestReservationBadInput(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1", "b1")
	w.startScheduler()
	good := w.reserve("good", inZones(1, "a"))
	w.waitReady(good, 1)

	huge := w.reserve("huge", inZones(1, "b"), slotOf("100"), ownedBy("huge"))
	w.waitReservation(huge, "fits no node", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationSays(s, v1alpha1.ConditionReady, v1alpha1.ReasonFitsNoNode, "larger than any node")
	})
	nowhere := w.reserve("nowhere", inZones(1, "z"), ownedBy("nowhere"))
	w.waitReservation(nowhere, "unknown zone", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationSays(s, v1alpha1.ConditionAccepted, v1alpha1.ReasonZonesWithoutNodes, "zone-z")
	})
	twin := w.reserve("twin", inZones(1, "b"))

	w.waitReady(good, 1)
	batch := w.create(newPods(7, "batch", "1")...)
	w.waitBoundOf(6, "", batch)
	w.waitBound(w.create(owners(1, "web", "1")...)...)
	w.waitReservation(good, "its owner has taken its slot", func(s *v1alpha1.ZoneReservationStatus) bool { return s.Slots.Held == 0 })
	// The same owners: the older reservation has them, and the younger says so.
	w.waitReservation(twin, "overlap", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationIs(s, v1alpha1.ConditionAccepted, metav1.ConditionTrue) &&
			reservationSays(s, v1alpha1.ConditionAccepted, v1alpha1.ReasonOwnersOverlap, "good") && s.Slots.Held == 1
	})
}
