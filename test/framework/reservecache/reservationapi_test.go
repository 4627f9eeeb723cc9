package reservecache

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/reservations"
)

// reservationAPI is the part of an API server that has ZoneReservations.
type reservationAPI struct {
	mu       sync.Mutex // guards all fields below, and keeps events in order
	version  int
	objects  map[string]*v1alpha1.ZoneReservation
	handler  cache.ResourceEventHandler
	statuses int // writes of status
}

func newReservationAPI() *reservationAPI {
	return &reservationAPI{objects: map[string]*v1alpha1.ZoneReservation{}}
}

// source implements reservations.Source.
func (a *reservationAPI) source(_ context.Context, handler cache.ResourceEventHandler, onChange func(bool)) (reservations.Watch, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handler = handler
	go func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		onChange(true)
		for _, obj := range a.objects {
			handler.OnAdd(obj, true)
		}
	}()
	return a, nil
}

// Settled implements reservations.Watch.
func (a *reservationAPI) Settled() bool { return true }

// PatchStatus implements reservations.Watch.
func (a *reservationAPI) PatchStatus(_ context.Context, _, name string, patch []byte) error {
	var p struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
		}
		Status v1alpha1.ZoneReservationStatus
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.objects[name]
	switch {
	case old == nil:
		return apierrors.NewNotFound(v1alpha1.Resource("zonereservations"), name)
	case old.UID != p.Metadata.UID || old.ResourceVersion != p.Metadata.ResourceVersion:
		return apierrors.NewConflict(v1alpha1.Resource("zonereservations"), name, nil)
	}
	obj := old.DeepCopy()
	obj.Status = p.Status
	a.statuses++
	a.storeLocked(obj)
	return nil
}

func (a *reservationAPI) storeLocked(obj *v1alpha1.ZoneReservation) {
	a.version++
	obj.ResourceVersion = strconv.Itoa(a.version)
	old := a.objects[obj.Name]
	a.objects[obj.Name] = obj
	switch {
	case a.handler == nil:
	case old == nil:
		a.handler.OnAdd(obj, false)
	default:
		a.handler.OnUpdate(old, obj)
	}
}

// apply makes a reservation, or changes its spec.
func (a *reservationAPI) apply(obj *v1alpha1.ZoneReservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	obj = obj.DeepCopy()
	if old := a.objects[obj.Name]; old != nil {
		spec := obj.Spec
		obj = old.DeepCopy()
		obj.Spec = spec
		obj.Generation++
	}
	a.storeLocked(obj)
}

func (a *reservationAPI) delete(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.objects[name]
	delete(a.objects, name)
	a.handler.OnDelete(old)
}

// status returns the stored status of a reservation.
func (a *reservationAPI) status(name string) v1alpha1.ZoneReservationStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	if obj := a.objects[name]; obj != nil {
		return *obj.Status.DeepCopy()
	}
	return v1alpha1.ZoneReservationStatus{}
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
