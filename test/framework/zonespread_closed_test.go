package framework

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
	"zonewise.dev/test/crdtest"
)

// TestClosedZone: a zone whose nodes are cordoned or dead holds the others back for downAfter and no longer, declared
// or not; when it is open again new pods fill it first, and nothing is blocked meanwhile.
func TestClosedZone(t *testing.T) {
	type way struct{ close, open func(*v1.Node) }
	for name, way := range map[string]way{
		"cordoned": {func(n *v1.Node) { n.Spec.Unschedulable = true }, func(n *v1.Node) { n.Spec.Unschedulable = false }},
		"dead":     {setReady(false), setReady(true)},
	} {
		for _, declared := range []bool{true, false} {
			runInBubble(t, fmt.Sprintf("%s, declared=%v", name, declared), func(t *testing.T) {
				c := newSpreadCluster(t)
				c.addNodes("16", "a1", "b1", "c1", "c2")
				edits := []func(*v1alpha1.ZoneSpreadPolicySpec){failover(2*time.Minute, time.Hour)}
				if declared {
					edits = append(edits, declaring("a", "b", "c"))
				}
				c.policies.Put(newPolicy(edits...))
				c.start()
				c.createPods(newPods(3, "web", "100m")...)
				c.waitZones("", map[string]int{"a": 1, "b": 1, "c": 1})

				c.editNode("c1", way.close)
				c.editNode("c2", way.close)
				c.eventually("that is noted at once", func() bool {
					return slices.ContainsFunc(c.status().Zones, func(z v1alpha1.ZoneStatus) bool { return z.Name == "c" && z.Since != nil })
				})
				since := c.clock.Now()
				c.createPods(newPods(5, "more", "100m")...)
				c.pass(100 * time.Second)
				require.Equal(t, map[string]int{"a": 1, "b": 1}, c.byZone("more"), "the others wait for it")
				c.waitBound("more", 5)
				require.InDelta(t, 2*time.Minute, c.clock.Since(since), float64(25*time.Second))
				require.Equal(t, map[string]int{"a": 4, "b": 3, "c": 1}, sorted(c.byZone("")))

				c.pass(time.Minute)
				c.editNode("c1", way.open)
				c.editNode("c2", way.open)
				c.eventually("it recovers", func() bool { return c.stateOf("c") == v1alpha1.ZoneRecovering })
				c.createPods(newPods(3, "back", "100m")...)
				c.waitZones("back", map[string]int{"c": 3})
				c.eventually("it has caught up", func() bool { return c.stateOf("c") == v1alpha1.ZoneAvailable })
			})
		}
	}
}

// sorted gives zone a no fewer pods than zone b: which of the two comes first is chance.
func sorted(counts map[string]int) map[string]int {
	if counts["a"] < counts["b"] {
		counts["a"], counts["b"] = counts["b"], counts["a"]
	}
	return counts
}

var policiesOfOutage = flag.Int("policies", 100, "policies of TestOutage; docs/performance.md has the figures for 1000")

// slowSource takes its time to write a status. Four are written at a time, which makes 20 writes a second.
type slowSource struct{ *crdtest.Source }

const writeTime = 200 * time.Millisecond

func (s slowSource) PatchStatus(ctx context.Context, was, is client.Object) error {
	select {
	case <-time.After(writeTime):
		return s.Source.PatchStatus(ctx, was, is)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestOutage: a zone closes under many policies, and the API server takes 20 writes a second. No decision waits for a
// status: pods go elsewhere at the end of the grace period, at the same time whether or not the scheduler was started
// again in it from what was written. The statuses follow as fast as they can be written.
func TestOutage(t *testing.T) {
	n := *policiesOfOutage
	written := time.Duration(n) * writeTime / 4
	inBubbles(t, map[string]bool{"one scheduler": false, "started again": true}, func(t *testing.T, restarts bool) {
		c := newSpreadCluster(t)
		c.slow = true
		c.addNodes("10000", "a1", "b1", "c1")
		for _, node := range []string{"a1", "b1", "c1"} {
			c.editNode(node, func(node *v1.Node) { node.Status.Allocatable[v1.ResourcePods] = resource.MustParse("5000") })
		}
		like := make([]*v1alpha1.ZoneSpreadPolicy, n)
		for i := range n {
			p := newPolicy(failover(2*time.Minute, time.Hour))
			p.Name, p.Namespace = fmt.Sprintf("policy-%d", i), namespaceOf(i)
			p.Spec.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprintf("app-%d", i)}
			c.policies.Put(p)
			like[i] = p
			for _, node := range []string{"a1", "b1", "c1"} {
				c.createPods(c.ofPolicy(i, "placed-"+node, build.Bound(node)))
			}
		}
		all := func(is func(z *v1alpha1.ZoneStatus) bool) func() bool {
			return func() bool {
				for _, p := range like {
					stored, _ := crdtest.Get(c.policies, p)
					if status := &stored.Status; len(status.Zones) != 3 || status.Pods < 3 || !is(&status.Zones[2]) {
						return false
					}
				}
				return true
			}
		}
		c.start()
		c.eventually("all statuses are there", all(func(z *v1alpha1.ZoneStatus) bool { return z.State == v1alpha1.ZoneAvailable }))
		c.pass(20 * time.Second)

		c.editNode("c1", func(node *v1.Node) { node.Spec.Unschedulable = true })
		start := c.clock.Now()
		for i := 0; i < n; i += n / 20 {
			// Two of them may go to zones a and b at once, the third waits for zone c.
			for k := range 3 {
				c.createPods(c.ofPolicy(i, fmt.Sprintf("more-%d", k)))
			}
		}
		c.eventuallyWithin(written+time.Second, "since is in all statuses", all(func(z *v1alpha1.ZoneStatus) bool { return z.Since != nil }))
		noted := c.clock.Since(start)
		if restarts {
			c.pass(10 * time.Second)
			c.stop()
			c.start()
		}
		c.pass(2*time.Minute - time.Second - c.clock.Since(start))
		require.Len(t, c.bound("more"), 40, "the others wait for zone c")
		c.waitBound("more", 60)
		decided := c.clock.Since(start)
		require.LessOrEqual(t, decided, 2*time.Minute+12*time.Second, "the grace period, and what is left of a backoff")
		c.eventually("all zones are closed in the statuses", all(func(z *v1alpha1.ZoneStatus) bool { return z.State == v1alpha1.ZoneClosed }))
		shown := c.clock.Since(start) - 2*time.Minute
		require.LessOrEqual(t, shown, 2*written+20*time.Second)
		t.Logf("%d policies: since in all statuses %v after the zone closed; all waiting pods elsewhere %v after it; all statuses current %v after the grace period",
			n, noted, decided, shown)
	})
}

// ofPolicy makes a pod of the i-th policy's app.
func (*cluster) ofPolicy(i int, name string, edit ...func(*v1.Pod)) *v1.Pod {
	return newPod(fmt.Sprintf("%s-%d", name, i), "1m", append(edit, build.Label("app", fmt.Sprintf("app-%d", i)), func(pod *v1.Pod) { pod.Namespace = namespaceOf(i) })...)
}

// namespaceOf returns the namespace of the i-th policy.
func namespaceOf(i int) string { return fmt.Sprintf("team-%d", i/100) }
