package policies

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

const (
	zoneLabel = v1.LabelTopologyZone
	profile   = "default-scheduler"
	// patience is how long a test waits for other goroutines.
	patience = 20 * time.Second
)

// world is a scheduler's surroundings without the scheduler.
type world struct {
	*Policies
	t       *testing.T
	clock   *testingclock.FakeClock
	client  *fake.Clientset
	factory informers.SharedInformerFactory
	api     *fakeAPI
	leads   chan struct{}
	stop    <-chan struct{}

	recorder *events.FakeRecorder

	mu    sync.Mutex // guards woken
	woken map[string]int
}

// fakeAPI serves policies.
type fakeAPI struct {
	handler  toolscache.ResourceEventHandler
	onChange func(bool)
	settled  atomic.Bool
	watches  atomic.Int32

	mu      sync.Mutex // guards the fields below
	objects map[types.UID]*v1alpha1.ZoneSpreadPolicy
	fail    error
	patches int
}

func (a *fakeAPI) Settled() bool { return a.settled.Load() }

// PatchStatus stores the status, as an API server would, and has the watch deliver it.
func (a *fakeAPI) PatchStatus(_ context.Context, namespace, name string, patch []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.patches++
	if a.fail != nil {
		return a.fail
	}
	for uid, obj := range a.objects {
		if obj.Namespace == namespace && obj.Name == name {
			after := obj.DeepCopy()
			var content struct {
				Status v1alpha1.ZoneSpreadPolicyStatus `json:"status"`
			}
			if err := json.Unmarshal(patch, &content); err != nil {
				return err
			}
			after.Status = content.Status
			after.ResourceVersion += "+"
			a.objects[uid] = after
			go a.handler.OnUpdate(obj, after)
		}
	}
	return nil
}

func (a *fakeAPI) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.patches
}

func (a *fakeAPI) stored(uid types.UID) *v1alpha1.ZoneSpreadPolicy {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[uid]
}

func (w *world) ProfileName() string                                    { return profile }
func (w *world) SharedInformerFactory() informers.SharedInformerFactory { return w.factory }
func (w *world) ClientSet() clientset.Interface                         { return w.client }
func (w *world) KubeConfig() *rest.Config                               { return nil }

func (w *world) EventRecorder() events.EventRecorderLogger { return w.recorder }

// Activate notes the pods. It asks the policies something, which would block for ever if a lock was held.
func (w *world) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	w.Policies.mu.Lock()
	w.Policies.mu.Unlock() //nolint:staticcheck // only that the lock is free matters
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range pods {
		w.woken[pod.Name]++
	}
}

var start = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// newWorld starts policies beside the given objects, with the CustomResourceDefinition installed.
func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	return newWorldAt(t, start, objects...)
}

func newWorldAt(t *testing.T, now time.Time, objects ...runtime.Object) *world {
	t.Helper()
	w := newWorldUnstarted(t, now, objects...)
	w.startInformers()
	return w
}

// newWorldUnstarted leaves the scheduler's informers to startInformers.
func newWorldUnstarted(t *testing.T, now time.Time, objects ...runtime.Object) *world {
	t.Helper()
	client := fake.NewClientset(objects...)
	w := &world{
		t: t, clock: testingclock.NewFakeClock(now), client: client, factory: informers.NewSharedInformerFactory(client, 0),
		api: &fakeAPI{objects: map[types.UID]*v1alpha1.ZoneSpreadPolicy{}}, leads: make(chan struct{}), woken: map[string]int{},
		recorder: events.NewFakeRecorder(100),
	}
	w.api.settled.Store(true)
	w.Policies = New(WithClock(w.clock),
		WithLeading(func(context.Context, Handle) <-chan struct{} { return w.leads }),
		WithSource(func(_ context.Context, handler toolscache.ResourceEventHandler, onChange func(bool)) (Watch, error) {
			w.api.handler, w.api.onChange = handler, onChange
			w.api.watches.Add(1)
			return w.api, nil
		}))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	require.NoError(t, w.Join(ctx, w))
	w.stop = ctx.Done()
	w.api.onChange(true)
	return w
}

func (w *world) startInformers() {
	w.factory.Start(w.stop)
	w.factory.WaitForCacheSync(w.stop)
}

// eventually lets time pass in small steps until condition holds.
func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		require.True(w.t, time.Now().Before(deadline), "did not happen: "+what)
		w.clock.Step(gather)
		time.Sleep(time.Millisecond) // for the other goroutines, between two looks at the condition
	}
}

// wakes returns how often a pod was activated.
func (w *world) wakes(pod string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.woken[pod]
}

// settle lets the delayed work of the present become due and waits until the worker has taken it.
func (w *world) settle() {
	w.t.Helper()
	for range 4 {
		steps := 0
		w.eventually("the queue is empty", func() bool {
			steps++
			return steps > 2 && w.queue.Len() == 0
		})
	}
}

// add delivers a policy.
func (w *world) add(obj *v1alpha1.ZoneSpreadPolicy) {
	w.api.mu.Lock()
	w.api.objects[obj.UID] = obj
	w.api.mu.Unlock()
	w.api.handler.OnAdd(obj, false)
}

// change delivers a policy with another spec.
func (w *world) change(obj *v1alpha1.ZoneSpreadPolicy, edit func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
	w.api.mu.Lock()
	before := w.api.objects[obj.UID]
	after := before.DeepCopy()
	after.Generation++
	edit(&after.Spec)
	w.api.objects[obj.UID] = after
	w.api.mu.Unlock()
	w.api.handler.OnUpdate(before, after)
	return after
}

// create creates an object and waits until the policies have seen it.
func (w *world) createPod(pod *v1.Pod) *v1.Pod {
	w.t.Helper()
	created, err := w.client.CoreV1().Pods(pod.Namespace).Create(w.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.eventually("pod "+pod.Name+" is seen", func() bool {
		w.Policies.mu.Lock()
		defer w.Policies.mu.Unlock()
		for _, a := range w.of(pod) {
			if _, ok := a.entry.pods.facts[pod.UID]; !ok {
				return false
			}
		}
		return true
	})
	return created
}

func newPolicy(name string, edit ...func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
	obj := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("policy-" + name), Generation: 1, ResourceVersion: "1"},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	for _, e := range edit {
		e(&obj.Spec)
	}
	return obj
}

// newPod returns a pod of the app web in the namespace shop; on a node when one is named.
func newPod(name, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("pod-" + name), Labels: map[string]string{"app": "web"}},
		Spec:       v1.PodSpec{SchedulerName: profile, NodeName: node},
	}
}

// newNode returns a ready node; the first letter of its name is its zone.
func newNode(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: map[string]string{zoneLabel: name[:1]}},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}
}

type nodeInfo struct {
	fwk.NodeInfo
	node *v1.Node
	pods []fwk.PodInfo
}

func (n *nodeInfo) Node() *v1.Node         { return n.node }
func (n *nodeInfo) GetPods() []fwk.PodInfo { return n.pods }

type podInfo struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (p *podInfo) GetPod() *v1.Pod { return p.pod }

// snapshot puts pods onto nodes.
func snapshot(nodes []*v1.Node, pods ...*v1.Pod) []fwk.NodeInfo {
	infos := make([]fwk.NodeInfo, len(nodes))
	for i, node := range nodes {
		info := &nodeInfo{node: node}
		for _, pod := range pods {
			if pod.Spec.NodeName == node.Name {
				info.pods = append(info.pods, &podInfo{pod: pod})
			}
		}
		infos[i] = info
	}
	return infos
}

func newNodes(names ...string) []*v1.Node {
	nodes := make([]*v1.Node, len(names))
	for i, name := range names {
		nodes[i] = newNode(name)
	}
	return nodes
}

func asObjects(nodes []*v1.Node) []runtime.Object {
	objects := make([]runtime.Object, len(nodes))
	for i := range nodes {
		objects[i] = nodes[i]
	}
	return objects
}

// statuses are the refusals of one attempt; absent is for the other nodes.
type statuses struct {
	fwk.NodeToStatusReader
	of     map[string]*fwk.Status
	absent *fwk.Status
}

func (s statuses) Get(node string) *fwk.Status {
	if status, ok := s.of[node]; ok {
		return status
	}
	return s.absent
}

func refusedBy(plugin string) *fwk.Status {
	return fwk.NewStatus(fwk.Unschedulable, "no").WithPlugin(plugin)
}

var everything = labels.Everything()

func declaring(names ...string) func(*v1alpha1.ZoneSpreadPolicySpec) {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) {
		for _, name := range names {
			s.Zones = append(s.Zones, v1alpha1.ZoneSpreadZone{Name: name})
		}
	}
}

func controlledBy(kind, name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}}
}

// replicasOf returns the desired replicas that the worker has seen last.
func (w *world) replicasOf(uid types.UID) int64 {
	w.Policies.mu.Lock()
	defer w.Policies.mu.Unlock()
	return w.entries[uid].replicas
}
