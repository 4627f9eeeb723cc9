package performance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/test/crdtest"
)

// reserveCluster is a whole scheduler over objects in memory. Its API server binds pods at once, and tells of it.
type reserveCluster struct {
	cycler
	// shared is nil for a scheduler without ReserveCache.
	shared *reservecache.Shared
}

// newReserveCluster makes a scheduler that is not running, with ReserveCache beside kube-scheduler's default plugins if it is asked for.
func newReserveCluster(
	b *testing.B, withReserveCache bool, nodes []*v1.Node, pods []*v1.Pod, reservations []*v1alpha1.ZoneReservation,
) *reserveCluster {
	b.Helper()
	held := make([]client.Object, 0, len(reservations))
	for _, r := range reservations {
		held = append(held, r)
	}
	c := &reserveCluster{}
	c.client = newAPI(nodes, pods)
	cfg, err := latest.Default()
	require.NoError(b, err)
	registry := frameworkruntime.Registry{}
	if withReserveCache {
		c.shared = reservecache.NewShared(reservecache.WithSource(crdtest.New(held...)))
		registry[reservecache.Name] = c.shared.New
		enabled := &cfg.Profiles[0].Plugins.MultiPoint.Enabled
		*enabled = append(*enabled, config.Plugin{Name: reservecache.Name})
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	c.scheduler = newScheduler(ctx, b, c.client, cfg.Profiles, registry)
	return c
}

// quiet waits until all that the scheduler and the plugin had to do is done.
func (c *reserveCluster) quiet(b *testing.B) {
	b.Helper()
	require.Eventually(b, func() bool { return c.queueEmpty() && (c.shared == nil || c.shared.Idle()) }, 30*time.Minute, 100*time.Millisecond)
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

// BenchmarkReserveCacheUnfilled is the scheduling cycle of a plain pod on 5,000 nodes, with a cordon a second: with kube-scheduler's
// plugins alone, with ReserveCache and no reservation, and beside 1,000 reservations with different selectors that all lack ten slots.
// The three take turns of twenty milliseconds.
//
//	intree-us, none-us, unfilled-us   medians
//	ratio                             of the last two, and of their means and 99th percentiles
func BenchmarkReserveCacheUnfilled(b *testing.B) {
	nodes, pods := reserveNodes(5000)
	clusters := []*reserveCluster{
		newReserveCluster(b, false, nodes, pods, nil), newReserveCluster(b, true, nodes, pods, nil), newReserveCluster(b, true, nodes, pods, unfilled(1000)),
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
	b.ReportMetric(us(took[2].median())/us(took[1].median()), "ratio")
	b.ReportMetric(us(took[2].mean())/us(took[1].mean()), "mean-ratio")
	b.ReportMetric(us(took[2].percentile(99))/us(took[1].percentile(99)), "p99-ratio")
}

// BenchmarkReserveCacheStart is how long the first scheduling cycle takes of a process that finds 1,000 reservations of ten slots and
// 5,000 nodes: all slots are placed before its pod.
func BenchmarkReserveCacheStart(b *testing.B) {
	nodes, pods := reserveNodes(5000)
	var reservations []*v1alpha1.ZoneReservation
	for i := range 1000 {
		reservations = append(reservations, reservationFor(fmt.Sprintf("app-%d", i), 10, v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}))
	}
	var sum time.Duration
	n := 0
	for b.Loop() {
		c := newReserveCluster(b, true, nodes, pods, reservations)
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

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }
