package framework

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// leaving lists the pods among names that have been asked to leave.
func (c *cluster) leaving(names ...string) (leaving []string) {
	for _, name := range names {
		if c.getPod(name).DeletionTimestamp != nil {
			leaving = append(leaving, name)
		}
	}
	return leaving
}

// TestFailedReleasesEvictLessAndLess: a gang that preempts and whose member is never prepared evicts the pods that come
// back at most every ten minutes. When it can be prepared it preempts as any other.
func TestFailedReleasesEvictLessAndLess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "1s", "maxBackoff": "30s", "bindRehearsal": "Never"}`, 2)
		c.mishap.set(func(m *mishap) {
			m.preBind = func(_ context.Context, pod string) *fwk.Status {
				if pod == "urgent-0" {
					return fwk.NewStatus(fwk.Error, "no volume")
				}
				return nil
			}
		})
		low := 0
		replace := func() { // as their controller does
			low++
			c.create(member("", fmt.Sprint("low-", low), 2).Priority(1))
		}
		replace()
		c.requireBound("low-1")
		gang := c.createUrgent(2)
		for start := c.clock.Now(); c.clock.Since(start) < 2*time.Hour; c.pass(5 * time.Second) {
			if !c.exists(fmt.Sprint("low-", low)) {
				replace()
			}
		}
		require.GreaterOrEqual(t, low, 5)
		require.LessOrEqual(t, low, 5+12+1, "1, 2, 4 and 8 minutes, and then 10")
		c.mishap.set(func(m *mishap) { m.preBind = nil })
		c.eventuallyWithin(12*time.Minute, "it preempts", func() bool { return len(c.boundAmong(gang...)) == len(gang) })
	})
}

// TestRoomThatOthersTakeEvictsLessAndLess: each time that victims have gone, another scheduler has bound a pod to their
// room.
func TestRoomThatOthersTakeEvictsLessAndLess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "1s", "maxBackoff": "30s", "bindRehearsal": "Never"}`, 2)
		c.server.Graceful.Store(true)
		low := 0
		bindNext := func() {
			low++
			c.bind("node-0", member("", fmt.Sprint("low-", low), 2).Priority(1))
		}
		bindNext()
		c.quiet()
		gang := c.createUrgent(2)
		for start := c.clock.Now(); c.clock.Since(start) < 2*time.Hour; c.pass(5 * time.Second) {
			if victim := fmt.Sprint("low-", low); len(c.leaving(victim)) > 0 {
				bindNext()
				c.finish(victim)
			}
		}
		require.GreaterOrEqual(t, low, 5)
		require.LessOrEqual(t, low, 6+12+1, "twice at once, after 1, 2, 4 and 8 minutes, and then 10")
		c.eventuallyWithin(12*time.Minute, "it preempts", func() bool { return len(c.leaving(fmt.Sprint("low-", low))) > 0 })
		c.finish(fmt.Sprint("low-", low))
		c.soon(func() bool { return len(c.boundAmong(gang...)) == len(gang) })
	})
}

// TestPreemptedRoomIsNotEnough: the gang needs more when its victims have gone, or a node has gone with them. It
// preempts again.
func TestPreemptedRoomIsNotEnough(t *testing.T) {
	type test struct {
		change func(c *cluster, node string)
		bound  int
	}
	inBubbles(t, map[string]test{
		"minMember is raised": {func(c *cluster, _ string) { c.groups.set("urgent", 3) }, 3},
		"a node is deleted": {func(c *cluster, node string) {
			c.deleteNode(node)
		}, 2},
	}, func(t *testing.T, tt test) {
		c := startGangCluster(t, preempting, 1, 1, 1)
		c.server.Graceful.Store(true)
		nodes := map[string]string{"low-0": "node-0", "low-1": "node-1", "low-2": "node-2"}
		for pod, node := range nodes {
			c.bind(node, member("", pod).Priority(1).TerminationGracePeriodSeconds(3600))
		}
		c.quiet()
		c.groups.set("urgent", 2)
		gang := c.createMembers("urgent", 3, ranked(100))
		var victims []string
		c.soon(func() bool {
			victims = c.leaving("low-0", "low-1", "low-2")
			return len(victims) == 2
		})
		c.requireUnbound(gang...)
		tt.change(c, nodes[victims[0]])
		c.quiet()
		c.finish(victims...)
		for _, pod := range victims {
			delete(nodes, pod)
		}
		for last := range nodes {
			c.soon(func() bool { return len(c.leaving(last)) > 0 })
			c.finish(last)
		}
		c.soon(func() bool { return len(c.boundAmong(gang...)) == tt.bound })
	})
}

// TestPreemptedRoomIsKeptFromAnotherPluginsError: a plugin ahead of this one ends the cycle of a member while victims
// end, and the framework clears its nomination, which no extension point hears of.
func TestPreemptedRoomIsKeptFromAnotherPluginsError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 4)
		c.edit = func(p *config.KubeSchedulerProfile) {
			p.Plugins.PreFilter.Enabled = append([]config.Plugin{{Name: mishapName}}, p.Plugins.PreFilter.Enabled...)
		}
		c.start(withArgs(`{"initialBackoff": "10s", "maxBackoff": "10s", "bindRehearsal": "Never"}`))
		c.preemptTwo()
		c.pass(2 * time.Second)
		c.requireKept("node-0", 2)
		tried := c.mishap.tried("urgent-0")
		c.mishap.set(func(m *mishap) { m.preFilter = failing("urgent-0", fwk.Error) })
		c.pass(10 * time.Second)
		for i := 0; c.mishap.tried("urgent-0") == tried; i++ { // the gang has its turn
			require.Less(t, i, 100)
			c.pass(100 * time.Millisecond)
			c.quiet()
		}
		c.mishap.set(func(m *mishap) { m.preFilter = nil })
		c.requireKept("node-0", 2) // again, soon after the error
		c.requireKeptForTwo()
	})
}

// TestPreemptedRoomOutlivesAMember: a controller replaces a member while victims end. The gang starts all the same, if
// need be by the eviction of a pod that has taken the room of the member meanwhile.
func TestPreemptedRoomOutlivesAMember(t *testing.T) {
	inBubbles(t, map[string]string{"the scout": "urgent-0", "another": "urgent-1"}, func(t *testing.T, deleted string) {
		c := startGangCluster(t, preempting, 1, 1)
		c.server.Graceful.Store(true)
		c.bind("node-0", member("", "victim-0").Priority(1))
		c.bind("node-1", member("", "victim-1").Priority(1))
		c.quiet()
		c.createUrgent(2)
		c.soon(func() bool { return len(c.leaving("victim-0", "victim-1")) == 2 })
		c.create(member("", "late").Priority(1))
		c.finish("victim-0")
		c.requireUnbound("late")
		c.delete(deleted)
		c.finish(deleted)
		c.create(member("urgent", "urgent-2").Priority(100))
		c.finish("victim-1")
		c.server.Graceful.Store(false)
		c.soon(func() bool { return len(c.boundAmong("urgent-0", "urgent-1", "urgent-2")) == 2 })
		require.Empty(t, c.boundAmong("late"))
	})
}

// TestPodThatTerminatesForEver (its finalizer, a volume that is not unmounted) costs nothing to wait for. But a gang
// does not wait for it for ever.
func TestPodThatTerminatesForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 2, 2)
		now := metav1.Time{Time: c.clock.Now()}
		stuck := member("", "stuck", 2).Priority(1)
		stuck.DeletionTimestamp, stuck.Finalizers = &now, []string{"example.com/never"}
		c.bind("node-0", stuck)
		c.bind("node-1", member("", "low", 2).Priority(1))
		c.quiet()
		gang := c.createUrgent(2)
		c.pass(3 * time.Minute)
		require.Len(t, c.boundAmong(gang...), 2)
	})
}

// TestPreemptionInManyDomains: pods of the gang's priority keep a packed gang off all zones but the last, for a reason
// that the search's arithmetic does not know. It looks at eight zones at a time, at others each time.
func TestPreemptionInManyDomains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const zones = 20
		c := newGangCluster(t)
		c.packed("urgent", 2, podgroup.RequiredTopologyAnnotation)
		for i := range zones {
			for k := range 2 {
				c.addZonalNode(fmt.Sprintf("z%02d-%d", i, k), fmt.Sprintf("z%02d", i), 8)
			}
		}
		c.start(withArgs(`{"bindRehearsal": "Never"}`))
		for i := range zones {
			for k := range 2 {
				p := member("", fmt.Sprintf("noisy-%02d-%d", i, k)).Label("noisy", "true").Priority(100)
				if i == zones-1 {
					p.Priority(1)
				}
				node := fmt.Sprintf("z%02d-%d", i, k)
				c.bind(node, p, member("", "low-"+node).Priority(1))
			}
		}
		c.quiet()
		c.createMembers("urgent", 2, ranked(100), func(p *st.PodWrapper) *st.PodWrapper {
			return p.PodAntiAffinityExists("noisy", v1.LabelHostname, st.PodAntiAffinityWithRequiredReq)
		})
		c.pass(10 * time.Minute)
		require.Len(t, c.boundAmong("urgent-0", "urgent-1"), 2, refusal(c.getPod("urgent-0")))
	})
}

// TestTouchedPodGroup: a packed gang goes on with its domains when somebody else writes something into its PodGroup now
// and then.
func TestTouchedPodGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const zones = 60
		c := newGangCluster(t)
		for i := range zones {
			zone := fmt.Sprintf("z%d", i)
			c.addZonalNode(zone+"-0", zone, 2+i) // the tightest is tried first
		}
		c.addDevices(2, "", fmt.Sprintf("z%d-0", zones-1)) // only the roomiest has devices
		c.packed("g", 2, podgroup.RequiredTopologyAnnotation)
		c.start(withArgs(`{"bindRehearsal": "Never", "initialBackoff": "1s", "maxBackoff": "30s"}`))
		c.mishap.set(func(m *mishap) {
			m.preFilter = func(string) *fwk.Status { time.Sleep(10 * time.Millisecond); return nil }
		})
		c.createMembers("g", 2, c.claiming)
		for i := range 6 {
			c.pass(10 * time.Second)
			c.groups.edit("g", func(group *v1alpha1.PodGroup) { group.Annotations["example.com/heartbeat"] = fmt.Sprint(i) })
		}
		require.Len(t, c.boundAmong("g-0", "g-1"), 2)
	})
}
