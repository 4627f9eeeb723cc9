package reservecache

import (
	"context"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/test/build"
	"zonewise.dev/test/informertest"
)

func init() {
	// The plugin listens for a signal. The first one to do so starts the runtime's listener, which must not be in a
	// bubble.
	signal.Notify(make(chan os.Signal, 1), dumpSignals...)
}

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// handle is the part of a framework that the plugin uses.
type handle struct {
	fwk.Handle
	profile string
	factory informers.SharedInformerFactory
	client  kubernetes.Interface
}

func (h *handle) ProfileName() string                                    { return h.profile }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h *handle) KubeConfig() *rest.Config                               { return nil }
func (h *handle) EventRecorder() events.EventRecorderLogger              { return nil }
func (h *handle) Activate(klog.Logger, map[string]*v1.Pod)               {}

// cycleState is the part of a cycle's state that the plugin uses.
type cycleState struct {
	fwk.CycleState
	podGroup bool
	data     fwk.StateData
	// others have what has other keys than the plugin's own.
	others map[fwk.StateKey]fwk.StateData
}

func (s *cycleState) IsPodGroupSchedulingCycle() bool { return s.podGroup }

func (s *cycleState) Write(key fwk.StateKey, data fwk.StateData) {
	switch {
	case key == stateKey:
		s.data = data
	case s.others == nil:
		s.others = map[fwk.StateKey]fwk.StateData{key: data}
	default:
		s.others[key] = data
	}
}

func (s *cycleState) Read(key fwk.StateKey) (fwk.StateData, error) {
	data := s.data
	if key != stateKey {
		data = s.others[key]
	}
	if data == nil {
		return nil, fwk.ErrNotFound
	}
	return data, nil
}

// fixture is a plugin over a fake API server, with a clock that stands still.
type fixture struct {
	shared *Shared
	plugin *ReserveCache
	handle *handle
	client *fake.Clientset
	clock  *clocktesting.FakeClock
	// generation is that of the node of the last cycle.
	generation int64
	// node is n1 as the last cycle of filter has seen it.
	node fwk.NodeInfo
}

// newFixture builds the plugin; its informers are not started yet.
func newFixture(t testing.TB, args runtime.Object, objects ...runtime.Object) *fixture {
	t.Helper()
	client := fake.NewSimpleClientset(objects...)
	f := &fixture{
		client: client,
		handle: &handle{profile: "default-scheduler", factory: informers.NewSharedInformerFactory(client, 0), client: client},
		clock:  clocktesting.NewFakeClock(t0),
	}
	f.shared = NewShared(WithClock(f.clock))
	plugin, err := f.shared.New(t.Context(), args, f.handle)
	require.NoError(t, err)
	f.plugin = plugin.(*ReserveCache)
	return f
}

// start starts the informers and waits for the ledger to have seen the objects of the API server.
func (f *fixture) start(t testing.TB) *fixture {
	t.Helper()
	// Informers outlive the test's context by a moment; what they do then harms nobody.
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		f.handle.factory.Shutdown()
	})
	informertest.Start(ctx, t, f.handle.factory, f.client)
	require.NoError(t, f.plugin.running.gate.wait(t.Context()))
	return f
}

// eventually waits until a condition holds that the informers bring about.
func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond)
}

func makePod(name, nodeName string) *v1.Pod {
	return build.Pod(name, "1", build.Bound(nodeName), build.Scheduler(""))
}

func makeNode(name string) *v1.Node {
	return build.Node(name, "", "8", func(node *v1.Node) { delete(node.Status.Allocatable, v1.ResourceMemory) })
}
