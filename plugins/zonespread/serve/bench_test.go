package serve

import (
	"context"
	"fmt"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
	"zonewise.dev/test/crdtest"
)

// BenchmarkEvents is how long handlers take for one event with 150,000 pods, 1,000 policies and 10,000 owners: a pod
// comes, terminates and goes, and a node is cordoned and opened. That is more than they hold the lock for. The other
// case has all pods in one policy.
func BenchmarkEvents(b *testing.B) {
	for _, policies := range []int{1000, 1} {
		b.Run(fmt.Sprintf("policies=%d", policies), func(b *testing.B) { measureEvents(b, policies) })
	}
}

func measureEvents(b *testing.B, policies int) {
	b.Helper()
	const pods, owners = 150_000, 10_000
	list := make([]*v1alpha1.ZoneSpreadPolicy, policies)
	source := crdtest.New()
	for i := range list {
		list[i] = newPolicy(fmt.Sprintf("app-%d", i), func(s *v1alpha1.ZoneSpreadPolicySpec) {
			s.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprintf("app-%d", i)}
			s.MaxPerZone, s.Replicas = ptr.To(intstr.FromString("40%")), ptr.To(intstr.FromString("Matching"))
		})
		list[i].Namespace = fmt.Sprintf("ns-%d", i%20)
		source.Put(list[i])
	}
	w := newWorldOutside(b, source, newNodes("a1", "b1", "c1")...)
	newOwned := func(i int) *v1.Pod {
		return newPod(fmt.Sprintf("pod-%d", i), []string{"a1", "b1", "c1"}[i%3], func(pod *v1.Pod) {
			pod.Namespace = list[i%policies].Namespace
			pod.Labels["app"] = list[i%policies].Name
			pod.OwnerReferences = controller("batch/v1", "Job", fmt.Sprintf("job-%d", i%owners))
		})
	}
	for i := range pods {
		w.podChanged(nil, newOwned(i))
	}
	w.settle()
	require.Equal(b, int64(pods/policies), w.entries[list[0].UID].matching.count())

	var took []time.Duration
	timed := func(event func()) {
		start := time.Now()
		event()
		took = append(took, time.Since(start))
	}
	node := newNode("a1")
	cordoned := newNode("a1", func(n *v1.Node) { n.Spec.Unschedulable = true })
	i := pods
	for b.Loop() {
		pod := newOwned(i)
		i++
		timed(func() { w.podChanged(nil, pod) })
		ending := terminating(pod)
		timed(func() { w.podChanged(pod, ending) })
		timed(func() { w.podChanged(ending, nil) })
		timed(func() { w.nodeChanged(node, cordoned) })
		timed(func() { w.nodeChanged(cordoned, node) })
	}
	b.ReportMetric(0, "ns/op")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "median-us/event")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-us/event")
	b.ReportMetric(float64(took[len(took)*999/1000].Nanoseconds())/1000, "p99.9-us/event")
}

// lockWait is how long goroutines have waited for locks, in all.
func lockWait() float64 {
	sample := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}

// BenchmarkStatus is how long a status takes under 10,000 Deployments of 15 pods with one policy, and how long what a
// scheduling cycle asks for takes beside it: it must not wait for the status. On a machine that does other things too
// the longest cycle is one that had no processor. So the cycles are also timed beside a loop that does nothing with the
// policies, in turns: what is longer beside the status, and the wait for locks, is of this code.
func BenchmarkStatus(b *testing.B) {
	const deployments, pods = 10_000, 150_000
	p := newPolicy("web", percent("40%"))
	w := newWorldOutside(b, crdtest.New(p), newNodes("a1", "b1", "c1")...)
	sets := w.factory.Apps().V1().ReplicaSets().Informer().GetStore()
	store := w.factory.Core().V1().Pods().Informer().GetStore()
	ofDeployment := func(i int) func(*v1.Pod) {
		name := fmt.Sprintf("web-%d", i%deployments)
		return func(pod *v1.Pod) {
			pod.Labels["pod-template-hash"] = name
			pod.OwnerReferences = controller("apps/v1", "ReplicaSet", name)
		}
	}
	for i := range deployments {
		name := fmt.Sprintf("web-%d", i)
		require.NoError(b, sets.Add(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), Annotations: map[string]string{"deployment.kubernetes.io/desired-replicas": "15"},
			OwnerReferences: controller("apps/v1", "Deployment", "d-"+name),
		}}))
	}
	for i := range pods {
		require.NoError(b,
			store.Add(newPod(fmt.Sprintf("pod-%d", i), []string{"a1", "b1", "c1"}[i%3], ofDeployment(i))))
	}
	incoming := newPod("incoming", "", ofDeployment(0))
	applied := w.For(incoming)

	status := func() {
		w.recount(w.clock.Now(), p.UID)
		_, desired, ok := w.desiredStatus(p.UID)
		if !ok || desired.Status.Pods != pods {
			b.Errorf("no status of all pods: %v", ok)
		}
	}
	// beside times cycles until work has ended, and that.
	beside := func(work func(), cycles *[]time.Duration) (took time.Duration) {
		done := make(chan time.Duration)
		go func() {
			start := time.Now()
			work()
			done <- time.Since(start)
		}()
		for {
			select {
			case took = <-done:
				return took
			default:
				start := time.Now()
				w.Inputs(incoming, applied)
				*cycles = append(*cycles, time.Since(start))
			}
		}
	}

	var statuses, cycles, control []time.Duration
	waited := 0.0
	for b.Loop() {
		before := lockWait()
		took := beside(status, &cycles)
		waited += lockWait() - before
		statuses = append(statuses, took)
		beside(func() {
			for start := time.Now(); time.Since(start) < took; {
			}
		}, &control)
	}
	b.ReportMetric(waited*1000/float64(len(statuses)), "ms-waiting-for-locks/status")
	slices.Sort(cycles)
	slices.Sort(control)
	slices.Sort(statuses)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(statuses[len(statuses)/2].Microseconds())/1000, "median-ms/status")
	b.ReportMetric(float64(cycles[len(cycles)/2].Nanoseconds())/1000, "median-us/cycle")
	b.ReportMetric(float64(cycles[len(cycles)*999/1000].Nanoseconds())/1000, "p99.9-us/cycle")
	b.ReportMetric(float64(cycles[len(cycles)-1].Microseconds())/1000, "longest-ms/cycle")
	b.ReportMetric(float64(control[len(control)-1].Microseconds())/1000, "longest-ms/cycle-beside-a-loop")
}

// BenchmarkWake is how long it takes from a change of the desired replicas that raises a cap until a pod which the cap
// has refused is given to the scheduling queue, beside 1,000 policies, 15,000 nodes and a node that is cordoned or
// opened each second. The pod's backoff is over. Wakes are rounded up to wakeInterval, so that half of that is the
// least median.
func BenchmarkWake(b *testing.B) {
	const policies, nodes = 1000, 15_000
	source := crdtest.New(newPolicy("web", percent("40%")))
	for i := range policies - 1 {
		other := newPolicy(fmt.Sprintf("app-%d", i), percent("40%"), func(s *v1alpha1.ZoneSpreadPolicySpec) {
			s.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprintf("app-%d", i)}
		})
		other.Namespace = fmt.Sprintf("ns-%d", i%20)
		source.Put(other)
	}
	objects := []runtime.Object{newSet(11)}
	for i := range nodes {
		objects = append(objects, newNode(fmt.Sprintf("%c%d", 'a'+rune(i%3), i)))
	}
	w := newWorldOn(b, clock.RealClock{}, func() {}, source, objects...)
	ctx := b.Context()
	node, cordoned := newNode("a0"), newNode("a0", func(n *v1.Node) { n.Spec.Unschedulable = true })
	go wait.UntilWithContext(ctx, func(context.Context) {
		w.nodeChanged(node, cordoned)
		node, cordoned = cordoned, node
	}, time.Second)

	var took []time.Duration
	waiting := newPod("waiting", "", owned)
	for b.Loop() {
		w.attempt(waiting, true, nil)
		w.Policies.mu.Lock()
		w.waiting[waiting.UID].tried = time.Now().Add(-time.Minute)
		w.Policies.mu.Unlock()
		before, start := w.wakes("waiting"), time.Now()
		w.rescaled("shop", &policy.Workload{UID: "web", Replicas: 20})
		require.Eventually(b, func() bool { return w.wakes("waiting") > before }, patience, 100*time.Microsecond)
		took = append(took, time.Since(start))
	}
	start := time.Now()
	w.observeNodes()
	b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms/look-at-nodes")
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms/wake")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms/wake")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "longest-ms/wake")
}
