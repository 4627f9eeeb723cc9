package serve

import (
	"fmt"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/test/crdtest"
)

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
			pod.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name,
				UID: types.UID(name), Controller: ptr.To(true),
			}}
		}
	}
	for i := range deployments {
		name := fmt.Sprintf("web-%d", i)
		require.NoError(b, sets.Add(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), Annotations: map[string]string{"deployment.kubernetes.io/desired-replicas": "15"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: name,
				UID: types.UID("d-" + name), Controller: ptr.To(true),
			}},
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
