package reservations

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
)

// api is an API server with nothing but ZoneReservations.
type api struct {
	mu       sync.Mutex // guards all fields below
	version  int
	objects  map[types.UID]*v1alpha1.ZoneReservation
	handler  toolscache.ResourceEventHandler
	onChange func(bool)
	settled  bool
	conflict bool // refuse the next write
	writes   int
}

func (a *api) source(_ context.Context, handler toolscache.ResourceEventHandler, onChange func(bool)) (Watch, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handler, a.onChange = handler, onChange
	return a, nil
}

// Settled implements Watch.
func (a *api) Settled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settled
}

// PatchStatus implements Watch.
func (a *api) PatchStatus(_ context.Context, _, name string, patch []byte) error {
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
	a.writes++
	old := a.objects[p.Metadata.UID]
	switch {
	case old == nil:
		return apierrors.NewNotFound(v1alpha1.Resource("zonereservations"), name)
	case a.conflict || old.ResourceVersion != p.Metadata.ResourceVersion:
		a.conflict = false
		return apierrors.NewConflict(v1alpha1.Resource("zonereservations"), name, nil)
	}
	obj := old.DeepCopy()
	obj.Status = p.Status
	a.storeLocked(obj)
	return nil
}

func (a *api) storeLocked(obj *v1alpha1.ZoneReservation) {
	a.version++
	obj.ResourceVersion = strconv.Itoa(a.version)
	old := a.objects[obj.UID]
	a.objects[obj.UID] = obj
	if old == nil {
		a.handler.OnAdd(obj, false)
	} else {
		a.handler.OnUpdate(old, obj)
	}
}

// apply makes a reservation, or changes its spec.
func (a *api) apply(obj *v1alpha1.ZoneReservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	obj = obj.DeepCopy()
	if old := a.objects[obj.UID]; old != nil {
		obj.Status, obj.Generation = old.Status, old.Generation+1
	}
	a.storeLocked(obj)
}

func (a *api) delete(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.objects[uid]
	delete(a.objects, uid)
	a.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: old.Name, Obj: old})
}

func (a *api) stored(uid types.UID) *v1alpha1.ZoneReservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	if obj := a.objects[uid]; obj != nil {
		return obj.DeepCopy()
	}
	return &v1alpha1.ZoneReservation{}
}

// handle is the part of a framework that the package uses. The recorder keeps events.
type handle struct{ recorder *events.FakeRecorder }

func (handle) SharedInformerFactory() informers.SharedInformerFactory { return nil }
func (handle) KubeConfig() *rest.Config                               { return nil }
func (h handle) EventRecorder() events.EventRecorderLogger            { return h.recorder }

// woken counts the calls of a Waker.
type woken struct {
	mu            sync.Mutex // guards both
	freed, placed int
}

// Freed implements Waker.
func (w *woken) Freed(context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed++
}

// Placed implements Waker.
func (w *woken) Placed(context.Context, map[ledger.ClaimID]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placed++
}

func (w *woken) counts() (freed, placed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.freed, w.placed
}

// world is the reservations of a scheduler over a ledger, with a clock that is turned by hand.
type world struct {
	*Reservations

	api    *api
	ledger *ledger.Ledger
	clock  *clocktesting.FakeClock
	events *events.FakeRecorder
	woken  *woken
	lead   chan struct{}
}

// newWorld starts the reservations of a standby replica over the objects of an API server.
func newWorld(t *testing.T, objects map[types.UID]*v1alpha1.ZoneReservation, nodes ...*v1.Node) *world {
	t.Helper()
	if objects == nil {
		objects = map[types.UID]*v1alpha1.ZoneReservation{}
	}
	w := &world{
		api:    &api{objects: objects, settled: true, version: 100},
		ledger: ledger.New(ledger.DefaultOptions()),
		clock:  clocktesting.NewFakeClock(t0),
		events: events.NewFakeRecorder(1000),
		woken:  &woken{},
		lead:   make(chan struct{}),
	}
	for _, n := range nodes {
		w.ledger.AddNode(n)
	}
	w.Reservations = New(w.ledger, w.woken, WithSource(w.api.source), WithClock(w.clock),
		WithLeading(func(context.Context, Handle) <-chan struct{} { return w.lead }))
	require.NoError(t, w.Start(t.Context(), handle{recorder: w.events}))
	w.api.onChange(true)
	for _, obj := range objects {
		w.api.handler.OnAdd(obj, true)
	}
	return w
}

// leading starts the reservations of the leader.
func leading(t *testing.T, nodes ...*v1.Node) *world {
	t.Helper()
	w := newWorld(t, nil, nodes...)
	close(w.lead)
	return w
}

// until turns the clock until a condition holds.
func (w *world) until(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		if condition() {
			return true
		}
		w.clock.Step(10 * time.Millisecond)
		return false
	}, time.Minute, time.Millisecond)
}

func (w *world) condition(name, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(w.api.stored(types.UID("uid-"+name)).Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// untilCondition waits for a condition and returns its message.
func (w *world) untilCondition(t *testing.T, name, kind string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	w.until(t, func() bool {
		c := w.condition(name, kind)
		return c.Status == status && c.Reason == reason
	})
	return w.condition(name, kind).Message
}

// slots returns on which nodes a reservation has how many slots in the ledger.
func (w *world) slots(name string) map[string]int {
	slots := map[string]int{}
	status, _ := w.ledger.Claim(ledger.ClaimID{Kind: ledger.Reservation, UID: types.UID("uid-" + name)})
	for _, h := range status.Holds {
		slots[h.Node] = h.Slots
	}
	return slots
}

func node(name, zone, cpu string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{v1.LabelTopologyZone: zone}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourcePods: resource.MustParse("110"),
		}},
	}
}

func pod(name, nodeName, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{NodeName: nodeName, Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
}
