package performance

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/internal/crd/crdtest"
	"zonewise.dev/plugins"
	"zonewise.dev/sim"
)

// scaleWaiting is how many pods the schedulers of BenchmarkScale place.
const scaleWaiting = 200

// scaleObjects are the nodes and pods of a cluster, and its API server: it lists them without a copy, binds at once and tells of it.
type scaleObjects struct {
	nodes   *v1.NodeList
	bound   *v1.PodList
	waiting []*v1.Pod
}

// newScaleObjects makes nodes of three zones that are half full of pods of 3,000 apps, and the pods that wait. All are spread over the zones by a
// hard constraint, and over the nodes by a soft one.
func newScaleObjects(nodes, pods int) *scaleObjects {
	const apps = 3000
	o := &scaleObjects{nodes: &v1.NodeList{}, bound: &v1.PodList{}}
	for i := range nodes {
		o.nodes.Items = append(o.nodes.Items, *st.MakeNode().Name(nodeName(i)).UID(nodeName(i)).Label(v1.LabelHostname, nodeName(i)).Label(v1.LabelTopologyZone, fmt.Sprintf("zone-%d", i%3)).
			Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "64", v1.ResourceMemory: "256Gi", v1.ResourcePods: "250"}).Obj())
	}
	pod := func(i int) *v1.Pod {
		app, name := i%apps, fmt.Sprintf("app-%d-%d", i%apps, i/apps)
		p := st.MakePod().Namespace("default").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).
			Req(map[v1.ResourceName]string{v1.ResourceCPU: "1", v1.ResourceMemory: "1Gi"}).Obj()
		p.Labels = map[string]string{"app": fmt.Sprintf("app-%d", app), "pod-template-hash": fmt.Sprintf("hash-%d", app)}
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			spreadBy(app, v1.LabelTopologyZone, v1.DoNotSchedule), spreadBy(app, v1.LabelHostname, v1.ScheduleAnyway),
		}
		return p
	}
	for i := range pods {
		p := pod(i)
		p.Spec.NodeName = nodeName((i%apps*31 + i/apps) % (nodes / 3 * 3))
		o.bound.Items = append(o.bound.Items, *p)
	}
	for i := range scaleWaiting {
		o.waiting = append(o.waiting, pod(pods+i))
	}
	return o
}

// serve returns a client, what sends the waiting pods to it, and how many of them it has bound.
func (o *scaleObjects) serve() (client *fake.Clientset, send func(*v1.Pod), bound *atomic.Int64) {
	client, bound = fake.NewClientset(), &atomic.Int64{}
	// PermitGate has an informer of its own for the members of gangs, of which there are none.
	ofGangs := func(a clienttesting.Action) bool {
		switch a := a.(type) {
		case clienttesting.ListAction:
			return !a.GetListRestrictions().Labels.Empty()
		case clienttesting.WatchAction:
			return !a.GetWatchRestrictions().Labels.Empty()
		}
		return false
	}
	list := func(resource string, objects apiruntime.Object) {
		client.PrependReactor("list", resource, func(a clienttesting.Action) (bool, apiruntime.Object, error) { return !ofGangs(a), objects, nil })
	}
	list("nodes", o.nodes)
	list("pods", o.bound)
	changes := watch.NewFakeWithChanSize(4*len(o.waiting)+1, false)
	client.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, watch.Interface, error) { return !ofGangs(a), changes, nil })
	byName := map[string]*v1.Pod{}
	for _, pod := range o.waiting {
		byName[pod.Name] = pod
	}
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		binding, ok := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		if !ok {
			return false, nil, nil
		}
		pod := byName[binding.Name].DeepCopy()
		pod.Spec.NodeName = binding.Target.Name
		changes.Modify(pod)
		bound.Add(1)
		return true, binding, nil
	})
	return client, func(pod *v1.Pod) { changes.Add(pod) }, bound
}

// scaleFigures are those of one scheduler.
type scaleFigures struct {
	// synced is the time from the start of the informers until the caches have all, and first from there to the first bind.
	synced, first time.Duration
	// each is the mean time of a pod, and heap what is in use beyond the objects, once all is bound.
	each time.Duration
	heap int64
}

func (o *scaleObjects) run(b *testing.B, cfg *config.KubeSchedulerConfiguration, pack *plugins.Pack) (f scaleFigures) {
	b.Helper()
	before := spreadHeap()
	client, send, bound := o.serve()
	registry := frameworkruntime.Registry{}
	if pack != nil {
		for name, factory := range pack.Factories() {
			registry[name] = factory
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	start := time.Now()
	factory := scheduler.NewInformerFactory(client, 0, nil)
	s, err := scheduler.New(ctx, client, factory, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithProfiles(cfg.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry))
	require.NoError(b, err)
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	require.NoError(b, s.WaitForHandlersSync(ctx))
	f.synced = time.Since(start)

	until := func(n int64) {
		require.Eventually(b, func() bool { return bound.Load() >= n }, time.Hour, time.Millisecond)
	}
	start = time.Now()
	send(o.waiting[0])
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	until(1)
	f.first = time.Since(start)
	start = time.Now()
	for _, pod := range o.waiting[1:] {
		send(pod)
	}
	until(int64(len(o.waiting)))
	f.each = time.Since(start) / time.Duration(len(o.waiting)-1)
	f.heap = spreadHeap() - before
	runtime.KeepAlive(s)
	cancel()
	<-ended
	return f
}

// BenchmarkScale starts kube-scheduler's plugins alone, and the shipped profile, on the largest clusters, and has them place pods with constraints.
// The API server is in memory: what is measured is the scheduler.
//
//	*-synced-s    from the start of the informers until the caches are full
//	*-first-s     from then, as a standby that gets the lease, to the first bind
//	*-us/pod      for each of the pods after it
//	*-heap-MB     in use at the end, beyond the objects themselves
func BenchmarkScale(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{5000, 150_000}, {15_000, 300_000}} {
		b.Run(fmt.Sprintf("nodes=%d/pods=%d", size.nodes, size.pods), func(b *testing.B) {
			o := newScaleObjects(size.nodes, size.pods)
			inTree, err := latest.Default()
			require.NoError(b, err)
			shipped, err := sim.DefaultConfig()
			require.NoError(b, err)
			report := func(who string, f scaleFigures) {
				b.ReportMetric(f.synced.Seconds(), who+"-synced-s")
				b.ReportMetric(f.first.Seconds(), who+"-first-s")
				b.ReportMetric(float64(f.each.Microseconds()), who+"-us/pod")
				b.ReportMetric(float64(f.heap)/(1<<20), who+"-heap-MB")
			}
			for b.Loop() {
				theirs := o.run(b, inTree, nil)
				ours := o.run(b, shipped, plugins.NewPack(plugins.WithSource(crdtest.New())))
				report("intree", theirs)
				report("zonewise", ours)
				b.ReportMetric(float64(theirs.each)/float64(ours.each), "speedup")
			}
			b.ReportMetric(0, "ns/op")
			runtime.KeepAlive(o)
		})
	}
}
