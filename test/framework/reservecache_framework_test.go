package framework

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/internal/leader"
	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/test/crdtest"
)

// withReserveCache returns the default profile of kube-scheduler with ReserveCache in it.
func withReserveCache(t testing.TB, name string) config.KubeSchedulerProfile {
	t.Helper()
	cfg, err := latest.Default()
	require.NoError(t, err)
	p := cfg.Profiles[0]
	p.SchedulerName = name
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, config.Plugin{Name: reservecache.Name})
	return p
}

// newFramework builds a framework of a few plugins and ReserveCache over the objects, which both the
// scheduler's snapshot and the informers have.
func newFramework(t testing.TB, shared *reservecache.Shared, nodes []*v1.Node, pods []*v1.Pod) framework.Framework {
	t.Helper()
	client := fake.NewSimpleClientset()
	for _, n := range nodes {
		_, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, p := range pods {
		_, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	registry := plugins.NewInTreeRegistry()
	require.NoError(t, registry.Register(reservecache.Name, shared.New))
	p := withReserveCache(t, "default-scheduler")
	// Others need managers that these tests have no use for, and PodTopologySpread signs no pods while the
	// cluster has default constraints.
	kept := []string{names.PrioritySort, names.NodeResourcesFit, names.DefaultBinder, reservecache.Name}
	p.Plugins.MultiPoint.Enabled = slices.DeleteFunc(p.Plugins.MultiPoint.Enabled, func(p config.Plugin) bool { return !slices.Contains(kept, p.Name) })
	fw, err := runtime.NewFramework(t.Context(), registry, &p,
		runtime.WithClientSet(client),
		runtime.WithInformerFactory(factory),
		runtime.WithSnapshotSharedLister(cache.NewSnapshot(pods, nodes)),
		runtime.WithWaitingPods(runtime.NewWaitingPodsMap()),
	)
	require.NoError(t, err)
	factory.StartWithContext(t.Context())
	return fw
}

// TestBatchingStaysOn: the framework signs pods only if every plugin with a say in filtering does.
func TestBatchingStaysOn(t *testing.T) {
	fw := newFramework(t, reservecache.NewShared(), nil, nil)
	require.True(t, slices.ContainsFunc(fw.ListPlugins().PreFilter.Enabled, func(p config.Plugin) bool { return p.Name == reservecache.Name }))
	require.NotNil(t, fw.SignPod(t.Context(), st.MakePod().Namespace("default").Name("p").UID("p").Obj()))
}

// TestOwnersAreNotBatched: where one goes depends on the slots that the one before has left. All others are signed, and
// apart by priority, by which holds let pods in.
func TestOwnersAreNotBatched(t *testing.T) {
	api := &reservationAPI{crdtest.New()}
	api.apply(reservation("r", "web", 1, nil))
	shared := reservecache.NewShared(reservecache.WithSource(api))
	fw := newFramework(t, shared, nil, nil)
	leader.Of(t.Context(), fw).Cycle() // no command hands an election over
	owner := st.MakePod().Namespace("default").Name("p").UID("p").Label("app", "web").Obj()
	require.Eventually(t, func() bool { return fw.SignPod(t.Context(), owner) == nil }, time.Minute, time.Millisecond)

	one := st.MakePod().Namespace("default").Name("p").UID("p").Obj()
	same := st.MakePod().Namespace("default").Name("q").UID("q").Obj()
	higher := st.MakePod().Namespace("default").Name("q").UID("q").Priority(1).Obj()
	require.NotNil(t, fw.SignPod(t.Context(), one))
	require.Equal(t, fw.SignPod(t.Context(), one), fw.SignPod(t.Context(), same))
	require.NotEqual(t, fw.SignPod(t.Context(), one), fw.SignPod(t.Context(), higher))
}

// TestEventsAreOfBuiltInResources: the scheduler would wait for the informer of any other resource, and not schedule at
// all where it is missing.
func TestEventsAreOfBuiltInResources(t *testing.T) {
	fw := newFramework(t, reservecache.NewShared(), nil, nil)
	for _, extension := range fw.EnqueueExtensions() {
		if extension.Name() == reservecache.Name {
			registered, err := extension.EventsToRegister(t.Context())
			require.NoError(t, err)
			resources := map[fwk.EventResource]bool{}
			for _, e := range registered {
				resources[e.Event.Resource] = true
				require.NotNil(t, e.QueueingHintFn)
			}
			require.Equal(t, map[fwk.EventResource]bool{
				upstream.AssignedPodEvent(0, nil).Event.Resource: true, upstream.TargetPodEvent(0, nil).Event.Resource: true, fwk.Node: true,
			}, resources)
			return
		}
	}
	t.Fatal("the framework does not list ReserveCache among the plugins that register events")
}

// TestFeatureGatesApply: the ledger reads pods as the scheduler's NodeInfo does under the same gates.
func TestFeatureGatesApply(t *testing.T) {
	podLevel := st.MakePod().Namespace("default").Name("p").UID("p").Node("n1").Req(map[v1.ResourceName]string{"cpu": "1"}).Obj()
	podLevel.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}}
	for name, tc := range map[string]struct {
		gates    featuregatetesting.FeatureOverrides
		milliCPU int64
	}{
		"defaults":                    {milliCPU: 3000},
		"without pod-level resources": {gates: featuregatetesting.FeatureOverrides{features.PodLevelResources: false, features.InPlacePodLevelResourcesVerticalScaling: false}, milliCPU: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, tc.gates)
			shared := reservecache.NewShared(reservecache.WithComparisons())
			fw := newFramework(t, shared, []*v1.Node{st.MakeNode().Name("n1").UID("n1").Obj()}, []*v1.Pod{podLevel.DeepCopy()})
			_, status, _ := fw.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), st.MakePod().Namespace("default").Name("q").UID("q").Obj())
			require.True(t, status.IsSuccess(), status.AsError())
			got, known := shared.Ledger().GetPod("p")
			require.True(t, known)
			require.Equal(t, tc.milliCPU, got.Requests.MilliCPU)
			require.Equal(t, reservecache.Comparison{Count: 1, Differences: []string{}}, shared.Comparison())
		})
	}
}
