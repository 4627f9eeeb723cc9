package serve

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
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
			pod.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: fmt.Sprintf("job-%d",
					i%owners), UID: types.UID(fmt.Sprintf("job-%d", i%owners)), Controller: ptr.To(true),
			}}
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
