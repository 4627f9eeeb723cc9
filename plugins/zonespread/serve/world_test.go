package serve

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
	"zonewise.dev/test/build"
	"zonewise.dev/test/crdtest"
	"zonewise.dev/test/informertest"
)

// patience is how long a test waits for other goroutines outside of a bubble.
const patience = 30 * time.Second

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// world is a scheduler's surroundings without the scheduler. Handlers are called by the test, so that nothing comes by
// surprise; the listers have what the test puts into them.
type world struct {
	*Policies
	t        testing.TB
	clock    *testingclock.FakeClock
	source   *crdtest.Source
	client   *fake.Clientset
	factory  informers.SharedInformerFactory
	leads    chan struct{}
	recorder *events.FakeRecorder
	// rest waits until every goroutine has done what there is to do.
	rest func()

	woken sync.Map // names of activated pods, with how often
}

func (w *world) SharedInformerFactory() informers.SharedInformerFactory { return w.factory }
func (w *world) ClientSet() clientset.Interface                         { return w.client }
func (w *world) KubeConfig() *rest.Config                               { return nil }
func (w *world) EventRecorder() events.EventRecorderLogger              { return w.recorder }

// Activate notes the pods. It takes the lock, which would block for ever if it was held.
func (w *world) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	w.Policies.mu.Lock()
	defer w.Policies.mu.Unlock()
	for _, pod := range pods {
		n, _ := w.woken.LoadOrStore(pod.Name, 0)
		w.woken.Store(pod.Name, n.(int)+1)
	}
}

func (w *world) wakes(pod string) int {
	n, ok := w.woken.Load(pod)
	if !ok {
		return 0
	}
	return n.(int)
}

// newWorld starts policies beside objects and with the given policies, on a clock that stands still, in a bubble:
// informers and workers have done all that there is to do when the test goes on.
func newWorld(t *testing.T, source *crdtest.Source, objects ...runtime.Object) *world {
	t.Helper()
	return newWorldOn(t, testingclock.NewFakeClock(noon), synctest.Wait, source, objects...)
}

// newWorldOutside is newWorld outside of a bubble, for what is measured and for properties: nothing may depend on
// informers there.
func newWorldOutside(t testing.TB, source *crdtest.Source, objects ...runtime.Object) *world {
	t.Helper()
	return newWorldOn(t, testingclock.NewFakeClock(noon), func() {}, source, objects...)
}

// newWorldOn is either of them on any clock.
func newWorldOn(t testing.TB, c clock.WithTicker, rest func(), source *crdtest.Source, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{
		t: t, source: source, client: fake.NewSimpleClientset(objects...),
		leads: make(chan struct{}), recorder: events.NewFakeRecorder(1000), rest: rest,
	}
	w.clock, _ = c.(*testingclock.FakeClock)
	w.factory = informers.NewSharedInformerFactory(w.client, 0)
	w.Policies = New(WithClock(c), WithSource(source), WithPodBackoff(time.Second, 10*time.Second))
	w.Policies.leads = func(context.Context, Handle) <-chan struct{} { return w.leads }
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	require.NoError(t, w.Join(ctx, w))
	informertest.Start(ctx, t, w.factory, w.client)
	w.AwaitStart(ctx)
	w.settle()
	return w
}

// settle waits until there is nothing to do now.
func (w *world) settle() {
	w.t.Helper()
	w.rest()
	require.Eventually(w.t, func() bool { return w.started() && w.Idle() }, patience, time.Millisecond)
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		w.clock.Step(min(gatherInterval, end.Sub(w.clock.Now())))
		w.settle()
	}
}

// eventually lets time pass, an hour at most, until the condition holds.
func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	w.settle()
	for end := w.clock.Now().Add(time.Hour); !condition(); w.pass(gatherInterval) {
		require.True(w.t, w.clock.Now().Before(end), "did not happen: "+what)
	}
}

// lead makes it the leader.
func (w *world) lead() {
	w.t.Helper()
	close(w.leads)
	w.settle()
	w.Policies.mu.Lock()
	defer w.Policies.mu.Unlock()
	require.True(w.t, w.leading)
}

// stored returns the policy as the API server has it.
func (w *world) stored(p *v1alpha1.ZoneSpreadPolicy) *v1alpha1.ZoneSpreadPolicy {
	got, ok := crdtest.Get(w.source, p)
	require.True(w.t, ok)
	return got
}

// zone returns the status of a zone.
func (w *world) zone(p *v1alpha1.ZoneSpreadPolicy, name string) v1alpha1.ZoneStatus {
	for _, z := range w.stored(p).Status.Zones {
		if z.Name == name {
			return z
		}
	}
	return v1alpha1.ZoneStatus{}
}

func newPolicy(name string, edit ...func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
	p := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("policy-" + name)},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	for _, e := range edit {
		e(&p.Spec)
	}
	return p
}

// selectsNothing makes a policy one that cannot be applied.
func selectsNothing(s *v1alpha1.ZoneSpreadPolicySpec) { s.PodSelector = metav1.LabelSelector{} }

// newPod returns a pod of the app web in the namespace shop; on a node when one is named.
func newPod(name, node string, edit ...func(*v1.Pod)) *v1.Pod {
	return build.Pod(name, "", slices.Insert(edit, 0, build.Namespace("shop"), build.App("web"), build.Bound(node), func(pod *v1.Pod) {
		pod.UID = types.UID("pod-" + name)
	})...)
}

// newNode returns a ready node; the first letter of its name is its zone.
func newNode(name string, edit ...func(*v1.Node)) *v1.Node {
	return build.Node(name, name[:1], "8", slices.Insert(edit, 0, func(node *v1.Node) { node.UID = types.UID("node-" + name) })...)
}

func newNodes(names ...string) []runtime.Object {
	var nodes []runtime.Object
	for _, name := range names {
		nodes = append(nodes, newNode(name))
	}
	return nodes
}

// controller is the reference to an object's controller.
func controller(apiVersion, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}}
}

// attempt has a pod tried: refused by its policy or not, and full by other plugins.
func (w *world) attempt(pod *v1.Pod, refused bool, full []string) {
	w.t.Helper()
	w.exists(pod)
	var attempts []Attempt
	for _, input := range w.Inputs(pod, w.For(pod)) {
		attempts = append(attempts, Attempt{Input: input, Refused: refused, Full: full})
	}
	w.Attempted(pod, attempts)
}

// exists puts a pod into the store of the informer.
func (w *world) exists(pod *v1.Pod) {
	w.t.Helper()
	require.NoError(w.t, w.factory.Core().V1().Pods().Informer().GetStore().Add(pod))
}

// availability returns the availability of the zones for a pod.
func (w *world) availability(pod *v1.Pod) policy.ZoneAvailability {
	w.t.Helper()
	inputs := w.Inputs(pod, w.For(pod))
	require.NotEmpty(w.t, inputs)
	return inputs[0].Availability
}

var fullC = []string{"c"}
