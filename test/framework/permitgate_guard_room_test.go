package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// guardedStarving has a native gang collect room after 20 s in vain.
const guardedStarving = `{"nativeGroups": "Guard", "initialBackoff": "1s", "starvationAfter": "20s"}`

// createFullNodes adds nodes of one CPU, each with a pod small-N that takes it.
func (c *cluster) createFullNodes(nodes int) {
	c.t.Helper()
	for i := range nodes {
		c.addNode(fmt.Sprint("node-", i), 1)
		c.bind(fmt.Sprint("node-", i), member("", fmt.Sprint("small-", i)))
	}
	c.quiet()
}

// createFullZone adds nodes ZONE-N of one CPU, each with a pod small-ZONE-N that takes it.
func (c *cluster) createFullZone(zone string, nodes int) {
	c.t.Helper()
	for i := range nodes {
		node := fmt.Sprintf("%s-%d", zone, i)
		c.addZonalNode(node, zone, 1)
		c.bind(node, member("", "small-"+node))
	}
}

// startStarving starts a scheduler with nodes that are full, and with a native gang of as many members, which has been
// refused for long.
func (c *cluster) startStarving(args string, size int) []string {
	c.t.Helper()
	c.start(withArgs(args))
	c.createFullNodes(size)
	names := c.createNativeGang("g", size)
	c.starve(names...)
	return names
}

// TestStarvingNativeGangKeepsNodes: a native gang that has waited for long keeps what becomes free, piece by piece, and
// gives it back when its time is over. With GangScheduling alone small pods take each piece, and the gang waits as long
// as there are some.
func TestStarvingNativeGangKeepsNodes(t *testing.T) {
	const gang, waves = 3, 5
	// churn has the pods that run end one after the other, while as many others wait as ever.
	churn := func(c *cluster, names []string) (bound bool) {
		for i := range gang * waves {
			c.create(member("", fmt.Sprint("small-", gang+i)))
			c.pass(5 * time.Second)
			c.quiet()
			c.delete(fmt.Sprint("small-", i))
			c.pass(time.Second) // kube-scheduler may see it later than the gang does
			if len(c.boundAmong(names...)) > 0 {
				return true
			}
		}
		return false
	}
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t)
		names := c.startStarving(guardedStarving, gang)
		require.Equal(t, 1, c.recorder.count("PodGroup g GangKeepsNodes", "has been refused for 20s"))
		require.True(t, churn(c, names))
		c.requireBound(names...)

		c.delete(names...) // those that were kept off are tried at once, for whom that is no event
		c.requireBound("small-3", "small-4", "small-5")
	})
	nativeBubble(t, "GangScheduling alone", func(t *testing.T) {
		c := newGangCluster(t)
		names := c.startStarving(alone, gang)
		require.False(t, churn(c, names))
	})
	nativeBubble(t, "gives back", func(t *testing.T) {
		c := newGangCluster(t)
		c.maxBackoff = 1000
		names := c.startStarving(guardedStarving, gang)
		c.create(member("", "other"))
		c.createPodGroup("another", 1)
		c.create(nativeMember("another", "another-0"))
		c.delete("small-0", "small-1")
		c.requireUnbound(append(names, "other", "another-0")...)
		require.Contains(t, c.refused("other"), "the gang default/g keeps this node")
		c.pass(time.Minute + time.Second)
		require.Len(t, c.boundAmong("other", "another-0"), 2, "neither waits for a backoff")
	})
	nativeBubble(t, "would not fit alone", func(t *testing.T) {
		c := newGangCluster(t)
		c.start(withArgs(guardedStarving))
		c.createFullNodes(gang - 1)
		c.addNode("high", 1)
		c.create(member("", "high").Priority(9).Node("high"))
		names := c.createNativeGang("g", gang)
		c.starve(names...)
		c.create(member("", "other"))
		c.delete("small-0")
		c.requireBound("other")
	})
}

// TestGangsOfBothAPIsKeepNodesInTurn: one at a time, the oldest first, and a gang keeps nothing from its own members,
// but from those of the gang of the other API that has its name.
func TestGangsOfBothAPIsKeepNodesInTurn(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t)
		c.start(withArgs(`{"nativeGroups": "Guard", "initialBackoff": "1s", "maxBackoff": "1s", "starvationAfter": "1m", "gangPreemption": false}`))
		c.createFullNodes(2)
		native := c.createNativeGang("g", 2)
		c.pass(30 * time.Second)
		c.groups.set("g", 2)
		c.create(member("g", "crd-0"), member("g", "crd-1"))
		c.eventually("one collects", func() bool { return c.recorder.count("PodGroup g GangKeepsNodes", "") == 1 })
		c.delete("small-0")
		c.requireUnbound(append(native, "crd-0", "crd-1")...)
		c.delete("small-1")
		c.requireBound(native...)
		c.delete(native...)
		c.requireBound("crd-0", "crd-1")
	})
}

// TestPreemptionOnKeptNodes is for the gang that keeps them, and for pods of a higher priority: others of its priority
// evict no pod there.
func TestPreemptionOnKeptNodes(t *testing.T) {
	start := func(t *testing.T) (c *cluster, names []string) {
		t.Helper()
		c = newGangCluster(t)
		c.start(withArgs(guardedStarving))
		for i := range 3 {
			c.addNode(fmt.Sprint("node-", i), 2)
			for k := range 2 {
				c.create(member("", fmt.Sprintf("same-%d-%d", i, k)).Priority(10).Node(fmt.Sprint("node-", i)))
			}
		}
		names = c.createPriorityGang("g", 4, 10)
		c.starve(names...)
		require.Equal(t, 1, c.recorder.count("PodGroup g GangKeepsNodes", ""))
		return c, names
	}
	lower := func(c *cluster, names ...string) { // which no API server allows
		for _, name := range names {
			c.editPod(name, func(pod *v1.Pod) { pod.Spec.Priority, pod.Generation = ptr.To[int32](0), pod.Generation+1 })
		}
	}
	nativeBubble(t, "its own", func(t *testing.T) {
		c, names := start(t)
		lower(c, "same-0-0", "same-0-1", "same-1-0", "same-1-1")
		c.requireBound(names...)
	})
	nativeBubble(t, "a pod's", func(t *testing.T) {
		c, names := start(t)
		lower(c, "same-0-0")
		c.create(member("", "other").Priority(10))
		c.requireUnbound(append(names, "other")...)
		require.Contains(t, c.refused("other"), "the gang default/g keeps this node")
		require.True(t, c.exists("same-0-0"), "another pod of the gang's priority evicts no pod there")
	})
	nativeBubble(t, "another gang's", func(t *testing.T) {
		c, names := start(t)
		lower(c, "same-0-0", "same-0-1")
		c.createPriorityGang("n", 2, 10)
		c.requireUnbound(append(names, "n-0", "n-1")...)
		require.True(t, c.exists("same-0-0") && c.exists("same-0-1"))
	})
	nativeBubble(t, "a pod of a higher priority", func(t *testing.T) {
		c, names := start(t)
		c.delete("same-0-0")
		c.create(member("", "other").Priority(11))
		c.requireBound("other")
		c.requireUnbound(names...)
	})
}

// TestUnguardedGroupsAreKeptOff while a gang collects, also after the cycle of a group that saw less room, and are
// tried at once when it has ceased to.
func TestUnguardedGroupsAreKeptOff(t *testing.T) {
	nativeBubble(t, "and woken", func(t *testing.T) {
		c := newGangCluster(t)
		c.maxBackoff = 1000
		names := c.startStarving(guardedStarving, 2)
		c.delete("small-0")
		c.quiet()
		c.createPodGroup("basic", 0) // not guarded
		c.createNativeMembers("basic", 1)
		c.requireUnbound(append(names, "basic-0")...)
		require.Contains(t, c.refused("basic-0"), "the gang default/g keeps this node")
		c.pass(time.Minute)
		c.requireUnbound(names...)
		require.Equal(t, []string{"basic-0"}, c.boundAmong("basic-0"), "it does not wait for a backoff")
	})
	nativeBubble(t, "after another group", func(t *testing.T) {
		c := newGangCluster(t)
		c.countCycles()
		names := c.startStarving(guardedStarving, 2)
		before := c.cycles.Load()
		c.waitFor(soonest, 10*time.Millisecond, "a cycle of g", func() bool { return c.cycles.Load() > before })
		c.createNativeGang("other", 1) // its cycle sees no room
		c.settle()
		c.delete("small-0")
		c.settle()
		c.createPodGroup("basic", 0)
		c.createNativeMembers("basic", 1) // which is tried before g is
		c.requireUnbound(append(names, "basic-0")...)
	})
}

// TestClaimOfAnotherGangWakes those that the first one kept off: they may have their room at once.
func TestClaimOfAnotherGangWakes(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t)
		c.start(withArgs(guardedStarving))
		c.createFullZone("a", 2)
		c.createFullZone("b", 2)
		in := func(zone string) change {
			return func(p *st.PodWrapper) *st.PodWrapper {
				return p.NodeSelector(map[string]string{v1.LabelTopologyZone: zone})
			}
		}
		c.createNativeGang("second", 2, in("a"))
		c.pass(15 * time.Second)
		c.createNativeGang("first", 2, in("b")) // which goes first by its name
		c.eventually("second collects", func() bool { return c.recorder.count("PodGroup second GangKeepsNodes", "") == 1 })
		c.create(in("a")(member("", "other")))
		c.delete("small-a-0")
		require.Contains(t, c.refused("other"), "the gang default/second keeps this node")
		c.eventually("first collects", func() bool { return c.recorder.count("PodGroup first GangKeepsNodes", "") == 1 })
		require.Less(t, c.requireBound("other"), 10*time.Second, "as long as it collects")
	})
}

// TestPackedNativeGangKeepsNodesOfOneDomain: other pods may have the rest.
func TestPackedNativeGangKeepsNodesOfOneDomain(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t)
		c.start(withArgs(guardedStarving))
		c.createFullZone("a", 3)
		c.createFullZone("b", 2)
		c.createPodGroup("g", 3)
		c.packNative("g", podgroup.RequiredTopologyAnnotation)
		names := c.createNativeMembers("g", 3)
		c.starve(names...)
		c.create(member("", "other"))
		c.delete("small-a-0")
		c.requireUnbound(append(names, "other")...)
		c.delete("small-b-0")
		c.requireBound("other")
		c.delete("small-a-1", "small-a-2")
		c.requireBound(names...)
	})
}
