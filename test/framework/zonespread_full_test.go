package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// stateOf returns the state of a zone by the policy's status.
func (c *cluster) stateOf(zone string) v1alpha1.ZoneState {
	for _, z := range c.status().Zones {
		if z.Name == zone {
			return z.State
		}
	}
	return ""
}

// TestFullZone: a zone without room holds the others back for fullAfter and no longer. When it has room again the next
// pod shows it, and from then on maxSkew holds, whatever other scores say.
func TestFullZone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("64", "a1", "b1")
		c.addNodes("4", "c1")
		c.policies.Put(newPolicy(failover(time.Hour, 5*time.Minute), func(s *v1alpha1.ZoneSpreadPolicySpec) {
			s.UnavailableZones.Recovery = v1alpha1.RecoveryImmediate
		}))
		c.start()
		c.createPods(newPod("filler", "4", build.Label("app", "filler"), build.Bound("c1")))
		c.createPods(newPods(8, "web", "1")...)
		c.waitBound("web", 2)
		start := c.clock.Now()
		c.pass(290 * time.Second)
		require.Len(t, c.bound("web"), 2, "they wait for zone c")
		c.eventuallyWithin(30*time.Second, "they go elsewhere", func() bool { return len(c.bound("web")) == 8 })
		require.GreaterOrEqual(t, c.clock.Since(start), 5*time.Minute)
		require.Equal(t, map[string]int{"a": 4, "b": 4}, c.byZone("web"))
		require.Equal(t, v1alpha1.ZoneFull, c.stateOf("c"))
		tried := c.mishap.tried("web-7")
		require.Less(t, tried, 6, "none is tried in vain")

		c.createPods(newPods(2, "more", "1")...)
		c.waitBound("more", 2)
		require.Equal(t, map[string]int{"a": 1, "b": 1}, c.byZone("more"), "as long as it is full nothing waits for it")

		c.finish("filler")
		c.settle()
		c.createPods(newPods(4, "back", "1", prefersZone("a"))...)
		c.waitBound("back", 4)
		require.GreaterOrEqual(t, c.byZone("back")["c"], 3)
	})
}

// prefersZone has other scores, which together outweigh the policy's, prefer a zone.
func prefersZone(zone string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{
			Weight:     100,
			Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}},
		}}}}
	}
}

// TestRestart: a scheduler that starts from nothing but what the first one wrote goes on with a grace period, be it of
// a zone that is full or one that is closed, and makes the same decisions at the same time as one that was not stopped.
func TestRestart(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		for _, kind := range []string{"full", "full for other reasons", "closed", "recovering"} {
			runInBubble(t, fmt.Sprintf("%s, %v", kind, restarts), func(t *testing.T) {
				c := newSpreadCluster(t)
				c.addNodes("64", "a1", "b1", "c1")
				c.policies.Put(newPolicy(failover(5*time.Minute, 5*time.Minute)))
				c.start()
				c.createPods(newPods(3, "web", "1")...)
				c.waitBound("web", 3)
				port := func(*v1.Pod) {}
				cordon := func(is bool) {
					c.editNode("c1", func(n *v1.Node) { n.Spec.Unschedulable = is })
				}
				switch kind {
				case "full":
					c.editNode("c1", func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("1") })
				case "full for other reasons":
					c.editNode("c1", func(n *v1.Node) { n.Status.Allocatable["example.com/licence"] = resource.MustParse("0") })
					port = func(pod *v1.Pod) {
						pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}}
						pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
					}
					c.createPods(newPod("blocker", "1", build.Label("app", "blocker"), port, build.Bound("c1")))
					c.addNodes("64", "a2", "a3", "a4", "b2", "b3", "b4")
				case "closed", "recovering":
					cordon(true)
				}
				start := c.clock.Now()
				c.createPods(newPods(6, "more", "1", port)...)
				c.pass(2 * time.Minute)
				if restarts {
					c.stop()
					c.start()
				}
				c.pass(2*time.Minute + 40*time.Second)
				require.Less(t, len(c.bound("more")), 6)
				if kind == "recovering" {
					c.pass(5 * time.Minute)
					cordon(false)
					c.eventually("it recovers", func() bool { return c.stateOf("c") == v1alpha1.ZoneRecovering })
					c.pass(20 * time.Second)
					if restarts {
						c.stop()
						c.start()
					}
					// It does not hold the others back, though it cannot take a pod.
					c.editNode("c1", func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("1") })
					c.settle()
					c.createPods(newPods(4, "late", "1")...)
					c.eventuallyWithin(10*time.Second, "nothing waits", func() bool { return len(c.bound("late")) == 4 })
					return
				}
				c.eventuallyWithin(time.Minute, "they go elsewhere", func() bool { return len(c.bound("more")) == 6 })
				require.InDelta(t, 5*time.Minute, c.clock.Since(start), float64(40*time.Second))
			})
		}
	}
}

// overHosts is a hard constraint over hosts for the app web.
func overHosts(pod *v1.Pod) {
	pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	})
}

// withZoneConstraint adds a hard constraint over zones for the app web.
func withZoneConstraint(pod *v1.Pod) {
	pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, overZones())
}

// TestZoneIsFullByHosts: a zone whose one host has its pod already, by a constraint over hosts, is full for a policy
// over zones. By a constraint over the zones themselves it is not, as that is what the policy would wait for anyway.
func TestZoneIsFullByHosts(t *testing.T) {
	type test struct {
		edits []func(*v1.Pod)
		want  map[string]int
	}
	inBubbles(t, map[string]test{
		"over hosts":           {[]func(*v1.Pod){overHosts}, map[string]int{"a": 3, "b": 2, "c": 1}},
		"over hosts and zones": {[]func(*v1.Pod){overHosts, withZoneConstraint}, map[string]int{"a": 2, "b": 2, "c": 1}},
	}, func(t *testing.T, tt test) {
		// Given: zone c has one host, the others have three.
		c := newSpreadCluster(t)
		c.addNodes("64", "a1", "a2", "a3", "b1", "b2", "b3", "c1")
		c.policies.Put(newPolicy(failover(time.Hour, 30*time.Second)))
		c.start()
		// When: six pods want hosts of their own.
		c.createPods(newPods(5, "web", "1", tt.edits...)...)
		c.waitBound("web", 5)
		c.createPods(newPod("last", "1", tt.edits...))
		c.pass(2 * time.Minute)
		// Then: the last one goes to another zone once zone c is full, if nothing else refuses it.
		require.Equal(t, tt.want, sorted(c.byZone("")), fmt.Sprint(c.bound("")))
	})
}

// TestUnlabelledNodesAreNotBlamed: pods that lack CPU wait for CPU. That some node has no zone makes no difference.
func TestUnlabelledNodesAreNotBlamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// Given: two nodes with zones and one without.
		c := newSpreadCluster(t)
		c.addNodes("1", "a1", "b1", "c1")
		c.editNode("c1", func(n *v1.Node) { delete(n.Labels, v1.LabelTopologyZone) })
		c.policies.Put(newPolicy())
		c.start()
		// When: a pod wants more than any of them has.
		c.createPods(newPod("web", "4"))
		c.eventually("it was tried", func() bool { return c.mishap.tried("web") > 0 })
		c.pass(time.Minute)
		// Then: the policy is not named as what it waits for.
		satisfied := meta.FindStatusCondition(c.status().Conditions, v1alpha1.ConditionSatisfied)
		require.NotNil(t, satisfied)
		require.Equal(t, v1alpha1.ReasonSatisfied, satisfied.Reason, satisfied.Message)
	})
}
