package reservecache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd/crdtest"
)

// reservationAPI is the part of an API server that has ZoneReservations.
type reservationAPI struct{ *crdtest.Source }

func newReservationAPI() *reservationAPI { return &reservationAPI{crdtest.New()} }

// apply makes a reservation, or changes its spec.
func (a *reservationAPI) apply(obj *v1alpha1.ZoneReservation) {
	obj = obj.DeepCopy()
	if old, exists := crdtest.Get(a.Source, obj); exists {
		old.Spec = obj.Spec
		obj = old
	}
	a.Put(obj)
}

func (a *reservationAPI) delete(name string) {
	a.Delete(&v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// status returns the stored status of a reservation.
func (a *reservationAPI) status(name string) v1alpha1.ZoneReservationStatus {
	obj, _ := crdtest.Get(a.Source, &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return obj.Status
}

// requireSlots waits until a reservation's status has that many slots.
func (a *reservationAPI) requireSlots(t *testing.T, name string, held, used int64) {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		got := a.status(name)
		require.Equal(ct, [2]int64{held, used}, [2]int64{got.Slots.Held, got.Slots.Used}, "held and used: %+v", got)
	}, time.Minute, 5*time.Millisecond)
}

// requireCondition waits for a condition with that status and reason, and returns its message.
func (a *reservationAPI) requireCondition(t *testing.T, name, kind string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	message := ""
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		got := a.status(name)
		c := meta.FindStatusCondition(got.Conditions, kind)
		require.NotNil(ct, c)
		require.Equal(ct, status, c.Status, "%+v", got)
		require.Equal(ct, reason, c.Reason, "%+v", got)
		message = c.Message
	}, time.Minute, 5*time.Millisecond)
	return message
}

// reservation holds slots of one CPU each for the pods with the label app: APP.
func reservation(name, app string, slots int32, change func(*v1alpha1.ZoneReservation)) *v1alpha1.ZoneReservation {
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second))},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: "default", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}},
			Slot:   v1alpha1.ReservationSlot{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			Slots:  &slots,
		},
	}
	if change != nil {
		change(r)
	}
	return r
}

func cpus(amount string) *resource.Quantity {
	q := resource.MustParse(amount)
	return &q
}
