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
