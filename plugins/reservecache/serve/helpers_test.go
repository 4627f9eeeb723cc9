package serve

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/leader"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/test/build"
	"zonewise.dev/test/crdtest"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// reservation holds slots of one CPU for the pods of namespace shop with the label app: web.
func reservation(name string, slots int32, change func(*v1alpha1.ZoneReservation)) *v1alpha1.ZoneReservation {
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(t0)},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
			Slot:   v1alpha1.ReservationSlot{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			Slots:  &slots,
		},
	}
	if change != nil {
		change(r)
	}
	return r
}

func makeNode(name, cpu string) *v1.Node {
	return build.Node(name, "a", cpu)
}

func makePod(name, node, cpu string, labels map[string]string) *v1.Pod {
	return build.Pod(name, cpu, build.Namespace("shop"), build.Bound(node), func(pod *v1.Pod) { pod.Labels = labels })
}

// replica is a pod of the owners that was bound to n1 at that time.
func replica(name, cpu string, bound time.Time) *v1.Pod {
	pod := makePod(name, "n1", cpu, map[string]string{"app": "web"})
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(bound)}}
	return pod
}

// handle is the part of a framework that the server uses, and a waker that wakes nobody.
type handle struct {
	factory  informers.SharedInformerFactory
	recorder *events.FakeRecorder

	// waits has the pod "waiting" wait for room.
	waits bool

	mu      sync.Mutex // guards changed
	changed []string
}

func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

func (h *handle) EventRecorder() events.EventRecorderLogger {
	if h.recorder == nil {
		return nil
	}
	return h.recorder
}

func (h *handle) Empty() bool { return !h.waits }

func (h *handle) Choose(_ *floor.Floor, changed []floor.At, _ *Claims, _ bool, _ time.Time) Woken {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range changed {
		h.changed = append(h.changed, changed[i].Node)
	}
	return Woken{}
}

func (h *handle) Activate(klog.Logger, map[string]*v1.Pod) {}

// idleCycles are those of a scheduler that has nothing to do: the ledger tells what is held.
type idleCycles struct{}

func (idleCycles) Read(read func(*floor.Floor, Settled)) { read(floor.New(1), Settled{}) }

// fixture is a server over reservations in memory, with a clock that the test moves.
type fixture struct {
	*Server
	api    *crdtest.Source
	clock  *clocktesting.FakeClock
	handle *handle
	// renewed are the leases of other schedulers that are renewed.
	renewed map[string]bool
}

// heldOn is how much CPU is held on a node, as of the last pass.
func (f *fixture) heldOn(node string) int64 {
	f.passing.Lock()
	defer f.passing.Unlock()
	if f.published.floor == nil {
		return 0
	}
	held := f.published.floor.HeldOn()[node]
	return held.MilliCPU
}

// newFixture makes a server that is not started yet.
func newFixture(t *testing.T, maxHeldFraction float64, objects ...client.Object) *fixture {
	t.Helper()
	return newFixtureOn(t, maxHeldFraction, crdtest.New(objects...), "")
}

// newFixtureOn makes the server of a scheduler that asks for a lease.
func newFixtureOn(t *testing.T, maxHeldFraction float64, api *crdtest.Source, lease string) *fixture {
	t.Helper()
	f := &fixture{
		api: api, clock: clocktesting.NewFakeClock(t0),
		handle: &handle{factory: informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0), recorder: events.NewFakeRecorder(100)},
	}
	f.Server = New(&Config{
		Clock: f.clock, Source: f.api, Leader: leader.Of(t.Context(), f.handle), Lease: func() string { return lease },
		Yields: func(_ context.Context, own, named string) bool { return own != "" && named != own && f.renewed[named] },
		Ledger: ledger.New(ledger.DefaultOptions()), Floor: idleCycles{}, Fraction: maxHeldFraction,
		Nominated: func(string) ledger.Resources { return ledger.Resources{} }, Waker: f.handle, Handle: f.handle,
	})
	return f
}

// start starts the server as the first scheduling cycle does.
func (f *fixture) start(t *testing.T) *fixture {
	t.Helper()
	require.NoError(t, f.Start(t.Context(), nil))
	f.Leader.Cycle()
	f.AwaitStart(t.Context())
	return f
}

// add has pods seen by ledger and server, as the pod informer does.
func (f *fixture) add(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		_, err := f.Ledger.AddPod(pod)
		require.NoError(t, err)
		require.NoError(t, f.pods().Add(pod))
	}
	f.RequestPass()
}

// end has pods gone.
func (f *fixture) end(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		f.Ledger.RemovePod(types.UID(name))
		require.NoError(t, f.pods().Delete(makePod(name, "", "1", nil)))
	}
	f.RequestPass()
}

// pods are those of the pod informer.
func (f *fixture) pods() cache.Indexer {
	return f.handle.factory.Core().V1().Pods().Informer().GetIndexer()
}

func (f *fixture) status(name string) v1alpha1.ZoneReservationStatus {
	obj, _ := crdtest.Get(f.api, &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return obj.Status
}

// eventually waits until the stored status is as wanted, second by second. The test runs in a bubble.
func (f *fixture) eventually(t *testing.T, name string, wanted func(t require.TestingT, s *v1alpha1.ZoneReservationStatus)) {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		f.clock.Step(time.Second)
		synctest.Wait()
		s := f.status(name)
		wanted(ct, &s)
	}, time.Minute, 5*time.Millisecond)
}

// requireSlots waits until a status has that many slots, held and used.
func (f *fixture) requireSlots(t *testing.T, name string, held, used int64) {
	t.Helper()
	f.eventually(t, name, func(t require.TestingT, s *v1alpha1.ZoneReservationStatus) {
		require.Equal(t, [2]int64{held, used}, [2]int64{s.Slots.Held, s.Slots.Used}, "held and used: %+v", s)
	})
}

// requireCondition waits for a condition and returns its message.
func (f *fixture) requireCondition(t *testing.T, name, kind string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	message := ""
	f.eventually(t, name, func(t require.TestingT, s *v1alpha1.ZoneReservationStatus) {
		c := meta.FindStatusCondition(s.Conditions, kind)
		require.NotNil(t, c)
		require.Equal(t, []string{string(status), reason}, []string{string(c.Status), c.Reason}, "%+v", s.Conditions)
		message = c.Message
	})
	return message
}
