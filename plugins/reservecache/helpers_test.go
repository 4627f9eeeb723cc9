package reservecache

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// handle is the part of a framework that the plugin uses.
type handle struct {
	fwk.Handle
	profile string
	factory informers.SharedInformerFactory
	client  kubernetes.Interface

	activated []string
}

func (h *handle) ProfileName() string                                    { return h.profile }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h *handle) KubeConfig() *rest.Config                               { return nil }
func (h *handle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	h.activated = append(h.activated, slices.Sorted(maps.Keys(pods))...)
}
func (h *handle) SnapshotSharedLister() fwk.SharedLister { return snapshot{factory: h.factory} }

// snapshot has the nodes that the informer has, without pods.
type snapshot struct {
	fwk.SharedLister
	fwk.NodeInfoLister

	factory informers.SharedInformerFactory
}

func (s snapshot) NodeInfos() fwk.NodeInfoLister { return s }

func (s snapshot) Get(name string) (fwk.NodeInfo, error) {
	node, err := s.factory.Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		return nil, err
	}
	return snapshotOf(1, node), nil
}

// cycleState is the part of a cycle's state that the plugin reads.
type cycleState struct {
	fwk.CycleState
	podGroup bool
}

func (s *cycleState) IsPodGroupSchedulingCycle() bool { return s.podGroup }

func (s *cycleState) Write(fwk.StateKey, fwk.StateData) {}

// fixture is a plugin over a fake API server, with a clock that stands still.
type fixture struct {
	shared *Shared
	plugin *ReserveCache
	handle *handle
	client *fake.Clientset
	now    time.Time
}

// newFixture builds the plugin; its informers are not started yet.
func newFixture(t *testing.T, args runtime.Object, objects ...runtime.Object) *fixture {
	t.Helper()
	client := fake.NewClientset(objects...)
	f := &fixture{
		client: client,
		handle: &handle{profile: "default-scheduler", factory: informers.NewSharedInformerFactory(client, 0), client: client},
		shared: NewShared(),
		now:    t0,
	}
	f.shared.now = func() time.Time { return f.now }
	plugin, err := f.shared.New(t.Context(), args, f.handle)
	require.NoError(t, err)
	f.plugin = plugin.(*ReserveCache)
	return f
}

// start starts the informers and waits for the ledger to have seen the objects of the API server.
func (f *fixture) start(t *testing.T) *fixture {
	t.Helper()
	// Informers outlive the test's context by a moment; what they do then harms nobody.
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		f.handle.factory.Shutdown()
	})
	f.handle.factory.StartWithContext(ctx)
	require.NoError(t, f.plugin.running.gate.wait(t.Context()))
	return f
}

// eventually waits until a condition holds that the informers bring about.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 20*time.Second, time.Millisecond)
}

func makePod(name, nodeName string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{
			NodeName: nodeName,
			Containers: []v1.Container{{
				Name:      "c",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			}},
		},
	}
}

func makeNode(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status:     v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourcePods: resource.MustParse("110")}},
	}
}
