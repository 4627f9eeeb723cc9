package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// TestReservationDefaultPriority: without a priority a reservation is protected from pods without a priority class,
// whatever class the cluster gives them; one that says 0 is not, and says so.
func TestReservationDefaultPriority(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("2", "a1")
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "default-"}, Value: 100, GlobalDefault: true}
	require.NoError(t, w.cp.client.Create(w.ctx, class))
	// given waits until the API server gives pods without a class that priority.
	given := func(priority int32) {
		w.eventually("pods get the priority", func() (bool, string) {
			probe := w.create(newPod("probe", "1", build.Scheduler("example.com/none")))[0]
			w.deletePod(probe)
			return *probe.Spec.Priority == priority, fmt.Sprint(*probe.Spec.Priority)
		})
	}
	t.Cleanup(func() {
		require.NoError(t, w.cp.client.Delete(w.ctx, class))
		given(0)
	})
	r := w.reserve("shop", inZones(2, "a"))
	w.startScheduler()
	w.waitReady(r, 2)
	given(100)
	stranger := newPod("stranger", "1")
	w.create(stranger)
	w.waitUnschedulable("shop", stranger)
	w.waitReservation(r, "protected", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationIs(s, v1alpha1.ConditionProtected, metav1.ConditionTrue)
	})
	w.patchReservation(r, `{"spec":{"priority":0}}`)
	w.waitReservation(r, "not protected", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationSays(s, v1alpha1.ConditionProtected, v1alpha1.ReasonOutranked, "")
	})
	w.waitBound(stranger)
}

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
