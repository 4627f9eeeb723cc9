package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/test/build"
)

// fillNodes leaves no room on nodes of one CPU.
func (c *cluster) fillNodes(nodes ...string) {
	c.t.Helper()
	for _, node := range nodes {
		c.createPods(newPod("filler-"+node, "1", build.Label("app", "filler"), build.Bound(node)))
	}
}

// setCordon cordons a node as kubectl does, or takes that back.
func (c *cluster) setCordon(node string, on bool) {
	c.t.Helper()
	c.editNode(node, func(n *v1.Node) {
		n.Spec.Unschedulable, n.Spec.Taints = on, nil
		if on {
			now := metav1.NewTime(c.clock.Now())
			n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule, TimeAdded: &now}}
		}
	})
}

// taintNode keeps the pods of these tests from a node.
func (c *cluster) taintNode(name string) {
	c.t.Helper()
	c.editNode(name, func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: v1.TaintEffectNoSchedule})
	})
}

// TestNoZoneIsFullWithoutRoomElsewhere: a zone is full beside others. Where no zone has room the pods keep their spread
// for the nodes that come, however slowly.
func TestNoZoneIsFullWithoutRoomElsewhere(t *testing.T) {
	inBubbles(t, map[string]time.Duration{"nodes come soon": 3 * time.Minute, "nodes come late": 7 * time.Minute}, func(t *testing.T, wait time.Duration) {
		// Given: three zones without room, and pods that wait.
		c := newSpreadCluster(t)
		c.addNodes("1", "a1", "b1", "c1")
		c.policies.Put(newPolicy(failover(2*time.Minute, 5*time.Minute)))
		c.fillNodes("a1", "b1", "c1")
		c.start()
		c.createPods(newPods(9, "web", "1")...)
		c.pass(wait)
		// When: a node comes to one zone after the other.
		for _, name := range []string{"a2", "b2", "c2"} {
			c.addNodes("16", name)
			c.pass(time.Minute)
		}
		// Then: the pods are spread.
		c.eventuallyWithin(10*time.Minute, "all are bound", func() bool { return len(c.bound("web")) == 9 })
		require.Equal(t, map[string]int{"a": 3, "b": 3, "c": 3}, c.byZone("web"))
	})
}

// TestAGangPassesAFullZone: room for one member in a full zone is no room for the gang, since its rounds are undone.
func TestAGangPassesAFullZone(t *testing.T) {
	inBubbles(t, map[string]bool{"room for one member": false, "no room": true}, func(t *testing.T, filled bool) {
		c := newPackCluster(t, 16, 16, 1)
		c.policies.Put(newPolicy(failover(time.Hour, time.Minute)))
		if filled {
			c.fillNodes("c1")
		}
		c.start()
		c.createGang("g", 9, labelled("app", "web"))
		c.eventuallyWithin(10*time.Minute, "the gang is bound", func() bool { return len(c.bound("g-")) == 9 })
	})
}

// TestBackoffOfTheConfiguration: no change of a policy takes a pod out of the backoff that kube-scheduler is configured
// with.
func TestBackoffOfTheConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.maxBackoff = 300
		c.addNodes("640", "a1", "b1")
		c.addNodes("1", "c1")
		c.fillNodes("c1")
		c.policies.Put(newPolicy(failover(time.Hour, 5*time.Hour)))
		c.start()
		c.createPods(newPods(4, "web", "1")...)
		c.waitBound("web", 2)
		for i := range 60 {
			c.policies.Put(newPolicy(failover(time.Hour, 5*time.Hour+time.Duration(i)*time.Second)))
			c.pass(20 * time.Second)
		}
		for i := range 4 {
			require.LessOrEqual(t, c.triedTimes(fmt.Sprint("web-", i)), 12, "1, 2, 4 ... 256, 300 and 300 s in 20 minutes")
		}
	})
}

// TestLastNodeOfAClosingZone: pods that wait for a closing zone are tried when the last node there that they could use
// goes.
func TestLastNodeOfAClosingZone(t *testing.T) {
	inBubbles(t, map[string]bool{"no other node": false, "another closed node that they cannot use": true}, func(t *testing.T, other bool) {
		c := newSpreadCluster(t)
		c.addNodes("16", "a1", "b1", "c1")
		if other {
			c.addNodes("16", "c-cp")
			c.setCordon("c-cp", true)
			c.taintNode("c-cp")
		}
		c.policies.Put(newPolicy(failover(30*time.Minute, time.Hour)))
		c.start()
		c.createPods(newPods(3, "web", "1")...)
		c.waitBound("web", 3)
		c.setCordon("c1", true)
		c.pass(10 * time.Second)
		c.createPods(newPods(4, "more", "1")...)
		c.pass(time.Minute)
		require.Less(t, len(c.bound("more")), 4, "they wait for zone c")
		c.deleteNode("c1")
		c.eventuallyWithin(12*time.Second, "they go elsewhere", func() bool { return len(c.bound("more")) == 4 })
	})
}

// TestAZoneClosesByThePodsOwnNodes: an open node that the pods cannot use does not hide that those which they can are
// gone: they have downAfter to come back.
func TestAZoneClosesByThePodsOwnNodes(t *testing.T) {
	inBubbles(t, map[string]bool{"workers only": false, "beside a node of the control plane": true}, func(t *testing.T, controlPlane bool) {
		c := newSpreadCluster(t)
		c.addNodes("16", "a1", "b1", "c1")
		if controlPlane {
			c.addNodes("16", "c-cp")
			c.taintNode("c-cp")
		}
		c.policies.Put(newPolicy(failover(2*time.Minute, 5*time.Minute)))
		c.start()
		c.createPods(newPods(3, "web", "1")...)
		c.waitBound("web", 3)
		c.setCordon("c1", true)
		c.pass(10 * time.Second)
		c.createPods(newPods(6, "more", "1")...)
		c.pass(100 * time.Second)
		require.Less(t, len(c.bound("more")), 6, "zone c is closing")
		c.eventuallyWithin(30*time.Second, "it is closed", func() bool { return len(c.bound("more")) == 6 })
	})
}

// TestTooManyPolicies: a pod that too many policies select is refused, and says so, until there are fewer.
func TestTooManyPolicies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("16", "a1", "b1")
		last := newPolicy()
		for i := range 17 {
			last = newPolicy()
			last.Name = fmt.Sprintf("web-%02d", i)
			c.policies.Put(last)
		}
		c.start()
		c.createPods(newPod("web", "1"), newPod("other", "1", build.Label("app", "other")))
		c.waitBound("other", 1)
		c.pass(time.Minute)
		require.Empty(t, c.bound("web"))
		require.Contains(t, refusal(&c.listPods("web")[0]), "17 ZoneSpreadPolicies select the pod, at most 16 may")
		c.policies.Delete(last)
		c.waitBound("web", 1)
	})
}
