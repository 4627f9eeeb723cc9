package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// reservationCRD is the file of the ZoneReservation API in manifests.
const reservationCRD = "crds/zonewise.dev_zonereservations.yaml"

// newReservationWorld makes a world in which the API server serves reservations, and policies beside them. They stay served for the tests that
// follow.
func newReservationWorld(t *testing.T) *world {
	t.Helper()
	w := newReservationWorldWithout(t)
	w.installCRD(reservationCRD)
	return w
}

// newReservationWorldWithout leaves the CustomResourceDefinition to the test.
func newReservationWorldWithout(t *testing.T) *world {
	t.Helper()
	w := newPolicyWorld(t)
	t.Cleanup(func() {
		// The test's context is over by now.
		err := w.cp.client.DeleteAllOf(context.Background(), &v1alpha1.ZoneReservation{})
		if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	})
	return w
}

// inZones wants so many slots in each of the zones, which are named by their letters: inZones(2, "ab").
func inZones(slots int32, letters string) func(*v1alpha1.ZoneReservationSpec) {
	return func(s *v1alpha1.ZoneReservationSpec) {
		for _, letter := range letters {
			s.Zones = append(s.Zones, v1alpha1.ReservationZone{Name: zoneOf(string(letter)), Slots: slots})
		}
	}
}

// reserve creates a reservation for the app web, with slots that are as large as a pod of newPod with 1 cpu.
func (w *world) reserve(name string, edits ...func(*v1alpha1.ZoneReservationSpec)) *v1alpha1.ZoneReservation {
	w.t.Helper()
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{
				Namespace: w.namespace, PodSelector: metav1.LabelSelector{MatchLabels: labelled("web")},
			}},
			Slot: v1alpha1.ReservationSlot{Requests: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("64Mi"),
			}},
		},
	}
	for _, edit := range edits {
		edit(&r.Spec)
	}
	require.NoError(w.t, w.cp.client.Create(w.ctx, r))
	return r
}

// owners makes pods for which the reservations of reserve hold capacity.
func owners(n int, name, cpu string, options ...podOption) []*v1.Pod {
	return newPods(n, name, cpu, append([]podOption{build.Label("app", "web")}, options...)...)
}

// patchReservation changes a reservation.
func (w *world) patchReservation(r *v1alpha1.ZoneReservation, patch string) {
	w.t.Helper()
	require.NoError(w.t, w.cp.client.Patch(w.ctx, r, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// reservation reads one again.
func (w *world) reservation(r *v1alpha1.ZoneReservation) *v1alpha1.ZoneReservation {
	w.t.Helper()
	got := &v1alpha1.ZoneReservation{}
	require.NoError(w.t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(r), got))
	return got
}

// waitReservation waits until a reservation's status, computed from its present spec, is as wanted.
func (w *world) waitReservation(r *v1alpha1.ZoneReservation, what string, wanted func(s *v1alpha1.ZoneReservationStatus) bool) {
	w.t.Helper()
	w.eventually("status of "+r.Name+": "+what, func() (bool, string) {
		got := w.reservation(r)
		return got.Status.ObservedGeneration == got.Generation && wanted(&got.Status), fmt.Sprintf("%+v", got.Status)
	})
}

// waitSlots waits until so many slots are held and used.
func (w *world) waitSlots(r *v1alpha1.ZoneReservation, held, used int64) {
	w.t.Helper()
	w.waitReservation(r, fmt.Sprintf("%d held, %d used", held, used), func(s *v1alpha1.ZoneReservationStatus) bool {
		return s.Slots.Held == held && s.Slots.Used == used
	})
}

// waitReady waits until all slots that are wanted are held, and so many are not used.
func (w *world) waitReady(r *v1alpha1.ZoneReservation, unused int64) {
	w.t.Helper()
	w.waitReservation(r, fmt.Sprintf("ready, with %d unused slots", unused), func(s *v1alpha1.ZoneReservationStatus) bool {
		return s.Slots.Held-s.Slots.Used == unused && isReady(s)
	})
}

func isReady(s *v1alpha1.ZoneReservationStatus) bool {
	return reservationIs(s, v1alpha1.ConditionReady, metav1.ConditionTrue)
}

func reservationIs(s *v1alpha1.ZoneReservationStatus, kind string, status metav1.ConditionStatus) bool {
	return meta.IsStatusConditionPresentAndEqual(s.Conditions, kind, status)
}

// reservationSays reports whether a condition of a reservation has a reason and says something.
func reservationSays(s *v1alpha1.ZoneReservationStatus, kind, reason, says string) bool {
	c := meta.FindStatusCondition(s.Conditions, kind)
	return c != nil && c.Reason == reason && contains(c.Message, says)
}

// slotOf wants slots of so much cpu.
func slotOf(cpu string) func(*v1alpha1.ZoneReservationSpec) {
	return func(s *v1alpha1.ZoneReservationSpec) {
		s.Slot.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
	}
}

// ownedBy names another app than web.
func ownedBy(app string) func(*v1alpha1.ZoneReservationSpec) {
	return func(s *v1alpha1.ZoneReservationSpec) { s.Owners[0].PodSelector.MatchLabels = labelled(app) }
}

// waitBoundOf waits until n of the pods are bound and the others have been refused with reason in the message; it
// returns the latter.
func (w *world) waitBoundOf(n int, reason string, pods []*v1.Pod) (refused []*v1.Pod) {
	w.t.Helper()
	w.eventuallySeen(fmt.Sprintf("%d of %d are bound, the others refused: %s", n, len(pods), reason), pods, func(seen []*v1.Pod) (bool, string) {
		refused = nil
		state := ""
		for i, pod := range seen {
			if pod.Spec.NodeName != "" {
				continue
			}
			refused = append(refused, pods[i])
			if said := unschedulable(pod); !contains(said, reason) {
				state += fmt.Sprintf("%s: %q; ", pod.Name, said)
			}
		}
		return len(pods)-len(refused) == n && state == "", fmt.Sprintf("%d bound; %s", len(pods)-len(refused), state)
	})
	return refused
}
