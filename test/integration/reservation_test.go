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

const (
	headroom  = v1alpha1.ModeHeadroom
	guarantee = v1alpha1.ModeGuarantee
)

// TestReservationKeepsOthersOut: pods that the reservation does not name fill everything but the slots, owners get in, and
// those that it kept out go on when it is deleted.
func TestReservationKeepsOthersOut(t *testing.T) {
	t.Parallel()
	for _, mode := range []v1alpha1.ReservationMode{headroom, guarantee} {
		t.Run(string(mode), func(t *testing.T) {
			w := newReservationWorld(t)
			w.addNodes("4", "a1", "b1", "c1")
			r := w.reserve("shop", inZones(1, "abc"), ofMode(mode))
			s := w.startScheduler()
			w.waitReady(r, 3)
			w.waitSlotsOn(r, map[string]int64{"a1": 1, "b1": 1, "c1": 1})

			batch := w.create(newPods(12, "batch", "1")...)
			out := w.waitBoundOf(9, "shop", batch)
			for node, account := range s.ledgerAccount() {
				require.Equal(t, int64(3000), account.MilliCPU, node)
			}
			w.assertInvariants()

			mine := w.create(owners(3, "web", "1")...)
			w.waitBound(mine...)
			require.Equal(t, map[string]int{"zone-a": 1, "zone-b": 1, "zone-c": 1}, w.byZone(labelled("web")))
			if mode == headroom {
				w.waitSlots(r, 0, 0)
			} else {
				w.waitSlots(r, 3, 3)
			}
			// All is full. One owner goes: its slot is for the next owner, not for those that wait.
			w.deletePod(mine[0])
			if mode == headroom {
				w.waitSlots(r, 1, 0)
			} else {
				w.waitSlots(r, 3, 2)
			}
			w.requirePending(out...)
			w.waitBound(w.create(owners(1, "next", "1")...)...)
			w.requirePending(out...)

			w.deleteReservation(r)
			w.deletePod(mine[1])
			w.eventually("one of those that were kept out goes on", func() (bool, string) {
				n := w.boundOf(out)
				return n == 1, fmt.Sprint(n)
			})
		})
	}
}

// TestReservationDefaultPriority: without a priority a reservation is protected from pods without a priority class, whatever class the
// cluster gives them; one that says 0 is not, and says so.
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
