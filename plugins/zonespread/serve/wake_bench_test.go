package serve

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
	"zonewise.dev/test/crdtest"
)

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
