package performance

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins"
	"zonewise.dev/sim"
	"zonewise.dev/test/crdtest"
)

// scaleWaiting is how many pods the schedulers of BenchmarkScale place.
const scaleWaiting = 200

// scaleObjects are the nodes and pods of a cluster, and its API server: it lists them without a copy, binds at once and
// tells of it.
type scaleObjects struct {
	nodes   *v1.NodeList
	bound   *v1.PodList
	waiting []*v1.Pod
}

// newScaleObjects makes nodes of three zones that are half full of pods of 3,000 apps, and the pods that wait. All are
// spread over the zones by a hard constraint, and over the nodes by a soft one.
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

// serve returns a client, what sends the waiting pods to it, and what has a value for each of them that is bound.
func (o *scaleObjects) serve() (api *fake.Clientset, send func(*v1.Pod), bound chan struct{}) {
	api, bound = fake.NewSimpleClientset(), make(chan struct{}, len(o.waiting))
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
		api.PrependReactor("list", resource, func(a clienttesting.Action) (bool, apiruntime.Object, error) { return !ofGangs(a), objects, nil })
	}
	list("nodes", o.nodes)
	list("pods", o.bound)
	changes := watch.NewFakeWithChanSize(4*len(o.waiting)+1, false)
	api.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, watch.Interface, error) { return !ofGangs(a), changes, nil })
	bindsAtOnce(api, o.waiting, func(pod *v1.Pod) {
		changes.Modify(pod)
		bound <- struct{}{}
	})
	return api, func(pod *v1.Pod) { changes.Add(pod) }, bound
}

// scaleFigures are those of one scheduler.
type scaleFigures struct {
	// synced is the time from the start of the informers until the caches have all, and first from there to the first
	// bind.
	synced, first time.Duration
	// each are the times of the other pods, from their creation to their bind, one after the other.
	each spreadSamples
	// heap is what is in use beyond the objects, once all is bound.
	heap int64
}

// placing is a scheduler that runs and has placed the first of the pods that wait.
type placing struct {
	scheduler *scheduler.Scheduler
	send      func(*v1.Pod)
	bound     chan struct{}
	stop      func() // and waits
	// synced and first are those of scaleFigures.
	synced, first time.Duration
}

// start starts a scheduler, with a pack if it is not nil, on an API server that has further objects. When it returns,
// what comes with the first pod and with the pack's objects is over.
func (o *scaleObjects) start(b *testing.B, cfg *config.KubeSchedulerConfiguration, pack *plugins.Pack, objects ...apiruntime.Object) *placing {
	b.Helper()
	p := &placing{}
	var api *fake.Clientset
	api, p.send, p.bound = o.serve()
	for _, obj := range objects {
		require.NoError(b, api.Tracker().Add(obj))
	}
	registry := frameworkruntime.Registry{}
	if pack != nil {
		maps.Copy(registry, pack.Factories())
	}
	ctx, cancel := context.WithCancel(b.Context())
	start, ended := time.Now(), make(chan struct{})
	p.stop = func() {
		cancel()
		<-ended
	}
	p.scheduler = newScheduler(ctx, b, api, cfg.Profiles, registry)
	p.synced = time.Since(start)
	start = time.Now()
	p.send(o.waiting[0])
	go func() {
		defer close(ended)
		p.scheduler.Run(ctx)
	}()
	<-p.bound
	p.first = time.Since(start)
	if pack != nil {
		require.Eventually(b, pack.Idle, time.Hour, 10*time.Millisecond)
	}
	return p
}

func (o *scaleObjects) run(b *testing.B, cfg *config.KubeSchedulerConfiguration, pack *plugins.Pack) (f scaleFigures) {
	b.Helper()
	before := spreadHeap()
	p := o.start(b, cfg, pack)
	defer p.stop()
	f.synced, f.first = p.synced, p.first
	for _, pod := range o.waiting[1:] {
		start := time.Now()
		p.send(pod)
		<-p.bound
		f.each = append(f.each, time.Since(start))
	}
	f.heap = spreadHeap() - before
	runtime.KeepAlive(p.scheduler)
	return f
}

// BenchmarkScale starts kube-scheduler's plugins alone, and the shipped profile, on the largest clusters, and has them
// place pods with constraints. The API server is in memory: what is measured is the scheduler.
//
//	*-synced-s    from the start of the informers until the caches are full
//	*-first-s     from then, as a standby that gets the lease, to the first bind
//	*-us/pod      from the creation of a later pod to its bind, one after the other; mean
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
				b.ReportMetric(float64(f.each.mean().Microseconds()), who+"-us/pod")
				b.ReportMetric(float64(f.heap)/(1<<20), who+"-heap-MB")
			}
			for b.Loop() {
				theirs := o.run(b, inTree, nil)
				ours := o.run(b, shipped, plugins.NewPack(plugins.WithoutElection(), plugins.WithSource(crdtest.New())))
				report("intree", theirs)
				report("zonewise", ours)
				b.ReportMetric(float64(theirs.each.mean())/float64(ours.each.mean()), "speedup")
			}
			b.ReportMetric(0, "ns/op")
			runtime.KeepAlive(o)
		})
	}
}
