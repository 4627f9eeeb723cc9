package performance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/demo/workload"
	"zonewise.dev/plugins"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/sim"
	"zonewise.dev/test/crdtest"
)

// reserveCluster is a whole scheduler over objects in memory. Its API server binds pods at once, and tells of it.
type reserveCluster struct {
	cycler
	api *crdtest.Source
	// shared is nil for a scheduler without ReserveCache.
	shared *reservecache.Shared
	// idle reports whether the plugins have nothing to do.
	idle func() bool
	pods *watch.FakeWatcher
	// bound counts the binds, and tried the conditions that say that a pod has found no node.
	bound, tried atomic.Int64
	// stop ends all that the scheduler and the plugin do.
	stop context.CancelFunc
}

// profile says which plugins a scheduler has.
type profile int

const (
	inTree profile = iota
	// reserveCacheAlone has ReserveCache after kube-scheduler's plugins.
	reserveCacheAlone
	// shipped is the profile that Zonewise ships.
	shipped
)

// newReserveCluster makes a scheduler that is not running. Only with plugin set it has ReserveCache, beside
// kube-scheduler's default plugins.
func newReserveCluster(b *testing.B, kind profile, nodes []*v1.Node, pods []*v1.Pod, reservations []*v1alpha1.ZoneReservation) *reserveCluster {
	b.Helper()
	byName := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Name] = pod
	}
	held := make([]client.Object, 0, len(reservations))
	for _, r := range reservations {
		held = append(held, r)
	}
	// A watch of the tracker's own panics when its reader is slow.
	c := &reserveCluster{api: crdtest.New(held...), pods: watch.NewFakeWithChanSize(4*len(pods)+1, false)}
	c.client = newAPI(nodes, pods)
	c.client.PrependWatchReactor("pods", clienttesting.DefaultWatchReactor(c.pods, nil))
	bindsAtOnce(c.client, pods, func(pod *v1.Pod) {
		c.pods.Modify(pod)
		c.bound.Add(1)
	})
	c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.tried.Add(1)
		return true, byName[action.(clienttesting.PatchAction).GetName()], nil
	})
	cfg, err := latest.Default()
	require.NoError(b, err)
	registry := frameworkruntime.Registry{}
	c.idle = func() bool { return true }
	switch kind {
	case inTree:
	case reserveCacheAlone:
		c.shared = reservecache.NewShared(reservecache.WithSource(c.api))
		c.idle = c.shared.Idle
		registry[reservecache.Name] = c.shared.New
		enabled := &cfg.Profiles[0].Plugins.MultiPoint.Enabled
		*enabled = append(*enabled, config.Plugin{Name: reservecache.Name})
	case shipped:
		cfg, err = sim.DefaultConfig()
		require.NoError(b, err)
		pack := plugins.NewPack(plugins.WithoutElection(), plugins.WithSource(c.api))
		c.shared, c.idle = pack.ReserveCache(), pack.Idle
		registry = pack.Factories()
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	c.stop = cancel
	c.scheduler = newScheduler(ctx, b, c.client, cfg.Profiles, registry)
	return c
}

// quiet waits until all that the scheduler and the plugin had to do is done.
func (c *reserveCluster) quiet(b *testing.B) {
	b.Helper()
	require.Eventually(b, func() bool { return c.queueEmpty() && c.idle() }, 30*time.Minute, 100*time.Millisecond)
}

// reserveNodes are nodes of three zones and a hundred pools, with 32 CPUs of which a pod takes 20.
func reserveNodes(n int) ([]*v1.Node, []*v1.Pod) {
	nodes, pods := make([]*v1.Node, 0, n), make([]*v1.Pod, 0, n)
	for i := range n {
		name := nodeName(i)
		nodes = append(nodes, st.MakeNode().Name(name).UID(name).Label(v1.LabelHostname, name).Label(v1.LabelTopologyZone, fmt.Sprintf("zone-%d", i%3)).
			Label("pool", fmt.Sprint(i%100)).Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "32", v1.ResourceMemory: "128Gi", v1.ResourcePods: "110"}).Obj())
		pods = append(pods, st.MakePod().Namespace("default").Name("large-"+name).UID("large-"+name).Node(name).
			Req(map[v1.ResourceName]string{v1.ResourceCPU: "20", v1.ResourceMemory: "64Gi"}).Obj())
	}
	return nodes, pods
}

// reservationFor holds slots for the pods of an app.
func reservationFor(app string, slots int32, requests v1.ResourceList) *v1alpha1.ZoneReservation {
	return &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: app, UID: types.UID("r-" + app), Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0))},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: "default", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}},
			Slot:   v1alpha1.ReservationSlot{Requests: requests}, Slots: &slots,
		},
	}
}

// unfilled are reservations with different selectors, whose slots fit on empty nodes and not beside what is there.
func unfilled(n int) []*v1alpha1.ZoneReservation {
	all := make([]*v1alpha1.ZoneReservation, 0, n)
	for i := range n {
		r := reservationFor(fmt.Sprintf("app-%d", i), 10, v1.ResourceList{v1.ResourceCPU: resource.MustParse("16")})
		r.Spec.Slot.NodeSelector = map[string]string{"pool": fmt.Sprint(i % 100)}
		r.Spec.Slot.Tolerations = []v1.Toleration{{Key: fmt.Sprint(i), Operator: v1.TolerationOpExists}}
		all = append(all, r)
	}
	return all
}

// BenchmarkReserveCacheUnfilled is the scheduling cycle of a plain pod on 5,000 nodes, with a cordon a second: with
// kube-scheduler's plugins alone, with ReserveCache and no reservation, and beside 1,000 reservations with different
// selectors that all lack ten slots. The three take turns of twenty milliseconds.
//
//	intree-us, none-us, unfilled-us   medians
//	ratio                             of the last two, and of their means and 99th percentiles
func BenchmarkReserveCacheUnfilled(b *testing.B) {
	nodes, pods := reserveNodes(5000)
	clusters := []*reserveCluster{
		newReserveCluster(b, inTree, nodes, pods, nil), newReserveCluster(b, reserveCacheAlone, nodes, pods, nil), newReserveCluster(b, reserveCacheAlone, nodes, pods, unfilled(1000)),
	}
	for _, c := range clusters {
		c.cycles(b, nodes, 500*time.Millisecond)
		c.quiet(b)
	}
	took := inTurns(b, nodes, &clusters[0].cycler, &clusters[1].cycler, &clusters[2].cycler)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(us(took[0].median()), "intree-us")
	b.ReportMetric(us(took[1].median()), "none-us")
	b.ReportMetric(us(took[2].median()), "unfilled-us")
	reportRatios(b, took[2], took[1])
}

// BenchmarkReserveCacheStart is how long the first scheduling cycle takes of a process that finds 1,000 reservations of
// ten slots and 5,000 nodes: all slots are placed before its pod.
func BenchmarkReserveCacheStart(b *testing.B) {
	nodes, pods := reserveNodes(5000)
	var reservations []*v1alpha1.ZoneReservation
	for i := range 1000 {
		reservations = append(reservations, reservationFor(fmt.Sprintf("app-%d", i), 10, v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}))
	}
	var sum time.Duration
	n := 0
	for b.Loop() {
		c := newReserveCluster(b, reserveCacheAlone, nodes, pods, reservations)
		fw := c.scheduler.Profiles[v1.DefaultSchedulerName]
		require.NoError(b, c.scheduler.Cache.UpdateSnapshot(klog.Logger{}, fw.SnapshotSharedLister().(*cache.Snapshot)))
		info, err := framework.NewPodInfo(st.MakePod().Namespace("default").Name("p").UID("p").Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj())
		require.NoError(b, err)
		start := time.Now()
		_, err = c.scheduler.SchedulePod(b.Context(), fw, framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info})
		require.NoError(b, err)
		sum += time.Since(start)
		held := 0
		for _, on := range c.shared.Held() {
			held += int(on.Pods)
		}
		require.Equal(b, 10*1000, held, "slots are placed before the first pod")
		n++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(sum.Seconds()/float64(n), "s/start")
}

// traceCluster are the nodes and the pods of the trace that demo/workload cites, on that many nodes, and a reservation
// for each service: slots of the size of a replica for a tenth of the replicas, one at least.
func traceCluster(b *testing.B, count int) ([]*v1.Node, []*v1.Pod, []*v1alpha1.ZoneReservation) {
	b.Helper()
	plan := workload.NewPlan(0.05, 1)
	require.GreaterOrEqual(b, len(plan.Nodes), count)
	var nodes []*v1.Node
	for i := range count {
		nodes = append(nodes, plan.Nodes[i*len(plan.Nodes)/count].Object())
	}
	var pods []*v1.Pod
	var reservations []*v1alpha1.ZoneReservation
	for _, service := range plan.Services {
		d := service.Deployment()
		template := d.Spec.Template.DeepCopy()
		template.Labels["app"] = service.Name()
		for k := range int(*d.Spec.Replicas) {
			name := fmt.Sprintf("%s-%d", service.Name(), k)
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: template.Labels}, Spec: *template.Spec.DeepCopy()}
			pod.Spec.SchedulerName = v1.DefaultSchedulerName
			pods = append(pods, pod)
		}
		requests := v1.ResourceList{}
		for _, container := range template.Spec.Containers {
			maps.Copy(requests, container.Resources.Requests)
		}
		r := reservationFor(service.Name(), max(1, *d.Spec.Replicas/10), requests)
		r.Spec.Slot.NodeSelector, r.Spec.Slot.Tolerations = template.Spec.NodeSelector, template.Spec.Tolerations
		reservations = append(reservations, r)
	}
	return nodes, pods, reservations
}

// BenchmarkReserveCacheTrace schedules the services of a production trace, all pods there at the start: with
// kube-scheduler's plugins, with the shipped profile and no reservation, with one reservation for each service, and
// with placeholder pods that take what the reservations held at the end. On 300 nodes a third of the pods find no room,
// and more with the slots held; on 1,000 nodes there is room for all. CPU is that of the whole process, the API server
// in memory and the informers among it.
//
//	intree-cpu-s, none-cpu-s, held-cpu-s, ...         until as many attempts have been made as there are pods
//	ratio, intree-ratio, room-ratio                   of the CPU with reservations, to that without, of kube-scheduler, and with placeholders
//	intree-waiting, none-waiting, held-waiting, ...   pods without a node when none is left to be tried
//	intree-tries, none-tries, held-tries, ...         scheduling attempts until then
func BenchmarkReserveCacheTrace(b *testing.B) {
	for _, count := range []int{300, 1000} {
		b.Run(fmt.Sprintf("%dNodes", count), func(b *testing.B) { benchmarkTrace(b, count) })
	}
}

// traceFigures are what scheduling the trace took, and how it ended.
type traceFigures struct {
	cpu            time.Duration
	waiting, tries int
}

func benchmarkTrace(b *testing.B, count int) {
	nodes, pods, reservations := traceCluster(b, count)
	b.Logf("%d nodes, %d pods, %d services", len(nodes), len(pods), len(reservations))
	var intree, none, held, placeholders traceFigures
	n := 0
	for b.Loop() {
		n++
		runTrace(b, newReserveCluster(b, inTree, nodes, pods, nil), pods, &intree)
		runTrace(b, newReserveCluster(b, shipped, nodes, pods, nil), pods, &none)
		c := newReserveCluster(b, shipped, nodes, pods, reservations)
		runTrace(b, c, pods, &held)
		runTrace(b, newReserveCluster(b, shipped, nodes, slices.Concat(placeholdersOf(c, nodes), pods), nil), pods, &placeholders)
	}
	b.ReportMetric(0, "ns/op")
	for name, sum := range map[string]traceFigures{"intree": intree, "none": none, "held": held, "placeholders": placeholders} {
		b.ReportMetric(sum.cpu.Seconds()/float64(n), name+"-cpu-s")
		b.ReportMetric(float64(sum.waiting)/float64(n), name+"-waiting")
		b.ReportMetric(float64(sum.tries)/float64(n), name+"-tries")
	}
	b.ReportMetric(held.cpu.Seconds()/none.cpu.Seconds(), "ratio")
	b.ReportMetric(held.cpu.Seconds()/intree.cpu.Seconds(), "intree-ratio")
	b.ReportMetric(held.cpu.Seconds()/placeholders.cpu.Seconds(), "room-ratio")
}

// runTrace runs a scheduler until no pod is left to be tried, and adds what that took. It stops the cluster.
func runTrace(b *testing.B, c *reserveCluster, pods []*v1.Pod, sum *traceFigures) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	defer c.stop()
	attempts := func() int { return int(c.bound.Load() + c.tried.Load()) }
	before := cpuTime(b)
	go c.scheduler.Run(ctx)
	require.Eventually(b, func() bool { return attempts() >= len(pods) }, time.Hour, time.Millisecond)
	sum.cpu += cpuTime(b) - before
	c.quiet(b)
	sum.waiting += len(pods) - int(c.bound.Load())
	sum.tries += attempts()
}

// placeholdersOf returns bound pods that take what is held on each node, one for each slot; all slots are alike.
func placeholdersOf(c *reserveCluster, nodes []*v1.Node) (pods []*v1.Pod) {
	held := c.shared.Held()
	for _, node := range nodes {
		on := held[node.Name]
		for n := range on.Pods {
			requests := map[v1.ResourceName]string{}
			for name, quantity := range on.List() {
				if name != v1.ResourcePods {
					quantity.Set(quantity.Value() / on.Pods)
					requests[name] = quantity.String()
				}
			}
			name := fmt.Sprintf("placeholder-%s-%d", node.Name, n)
			pods = append(pods, st.MakePod().Namespace("default").Name(name).UID(name).Node(node.Name).Req(requests).Obj())
		}
	}
	return pods
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }
