package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// TestReplacementKeepsNothingOfNoUse: a gang that runs in zone a has lost a member, and zone a is full. Pods that fit
// on the empty nodes of zone b, where the member may not go, do not wait for it.
func TestReplacementKeepsNothingOfNoUse(t *testing.T) {
	inBubbles(t, map[string]bool{"packed": true, "by its volume": false}, func(t *testing.T, packed bool) {
		c := newGangCluster(t)
		c.addZonalNode("a-0", "a", 2)
		c.addZonalNode("b-0", "b", 1)
		c.addZonalNode("b-1", "b", 1)
		c.start(withArgs(`{"bindRehearsal": "Never"}`)) // starvationAfter: 5m
		c.groups.set("g", 2)
		late := member("g", "g-1")
		if packed {
			c.groups.annotate("g", map[string]string{podgroup.RequiredTopologyAnnotation: v1.LabelTopologyZone})
		} else {
			c.addVolume("data", v1.LabelTopologyZone, "a")
			withClaim("data")(&late.Pod)
		}
		c.bind("a-0", member("g", "g-0"), member("", "filler"))
		c.quiet()
		c.create(late)
		c.requireUnbound("g-1")
		require.Equal(t, 1, c.recorder.count("PodGroup g GangKeepsNodes", "lacks members of its quorum"))
		for i := range 30 {
			c.pass(20 * time.Second)
			other := fmt.Sprint("other-", i)
			c.create(member("", other))
			c.quiet()
			require.Len(t, c.boundAmong(other), 1, "after %d pods: %s", i, refusal(c.getPod(other)))
			c.delete(other)
		}
	})
}

// TestKeptNodesAreNotThrownAway while more of the members fit from time to time: one of ten nodes becomes free each two
// minutes, and small pods take what they get for twenty minutes each.
func TestKeptNodesAreNotThrownAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const nodes, lifetime = 10, 20 * time.Minute
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
		ends, created := map[string]time.Time{}, 0
		queue := func() {
			c.create(member("", fmt.Sprint("small-", created)))
			created++
		}
		for i := range nodes {
			name := fmt.Sprint("first-", i)
			c.bind(fmt.Sprintf("node-%d", i), member("", name))
			ends[name] = c.clock.Now().Add(time.Duration(i+1) * lifetime / nodes)
		}
		c.quiet()
		gang := c.createGang("g", nodes)
		for range 3 {
			queue()
		}
		for start := c.clock.Now(); len(c.boundAmong(gang...)) < nodes; c.pass(10 * time.Second) {
			require.Less(t, c.clock.Since(start), 2*time.Hour, "the gang has kept nodes %d times", c.recorder.count("PodGroup g GangKeepsNodes", ""))
			for pod := range c.bound("small-") {
				if _, known := ends[pod]; !known {
					ends[pod] = c.clock.Now().Add(lifetime)
				}
			}
			for pod, end := range ends {
				if c.clock.Now().After(end) {
					delete(ends, pod)
					c.delete(pod)
					queue()
				}
			}
		}
		require.Equal(t, 1, c.recorder.count("PodGroup g GangKeepsNodes", ""))
	})
}

// TestKeptNodesThatDoNotHelp: a gang whose nodes do not become free keeps them for a tenth of the time.
func TestKeptNodesThatDoNotHelp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 1, 1) // starvationAfter: 5m
		c.bind("node-0", member("", "for-ever"))
		c.bind("node-1", member("", "short"))
		c.quiet()
		gang := c.createGang("g", 2)
		c.delete("short")
		kept, all := time.Duration(0), 6*time.Hour
		for start, i := c.clock.Now(), 0; c.clock.Since(start) < all; i++ { // each pod is bound at once unless it is kept off
			other := fmt.Sprint("other-", i)
			c.create(member("", other))
			c.quiet()
			for len(c.boundAmong(other)) == 0 {
				c.pass(10 * time.Second)
				kept += 10 * time.Second
			}
			c.delete(other)
			c.pass(10 * time.Second)
		}
		require.Empty(t, c.boundAmong(gang...))
		require.NotZero(t, c.recorder.count("PodGroup g GangKeepsNodes", ""))
		require.LessOrEqual(t, kept, all/10, "%d times", c.recorder.count("PodGroup g GangKeepsNodes", ""))
	})
}

// TestOwnersHaveTheirSlotsOnKeptNodes: a starving gang keeps no owner off the slots that are held for it.
func TestOwnersHaveTheirSlotsOnKeptNodes(t *testing.T) {
	inBubbles(t, reservationKinds, func(t *testing.T, change func(*v1alpha1.ZoneReservation)) {
		c := newGangCluster(t, 7)
		c.profile = allPlugins
		c.start(withArgs(`{"initialBackoff": "10s", "maxBackoff": "10s", "gangPreemption": false}`))
		c.reserve("r", "web", 3, change)
		c.create(member("", "other", 2))
		c.requireBound("other")
		c.createGang("g", 3)
		c.pass(6 * time.Minute)
		require.Equal(t, 1, c.recorder.count("PodGroup g GangKeepsNodes", ""))
		c.create(member("", "stranger"))
		require.Contains(t, c.refused("stranger"), "the gang default/g keeps this node")
		c.create(member("", "late").Label("app", "late"))
		require.Contains(t, c.refused("late"), "the gang default/g keeps this node")
		c.groups.Put(reservation("later", "late", 1, change))
		require.Less(t, c.requireBound("late"), time.Minute, "no event tells that there are slots for it now")
		c.create(member("", "web").Label("app", "web"))
		require.Less(t, c.requireBound("web"), 10*time.Second)
		owners := c.createGang("owners", 2, labelled("app", "web"))
		require.Less(t, c.requireBound(owners...), 10*time.Second)
		c.requireUnbound("stranger")
	})
}

// keepsNode starts a gang of so many members that preempts no pod, and has it wait until it keeps the first node.
func (c *cluster) keepsNode(size int) (gang []string) {
	c.t.Helper()
	gang = c.createGang("g", size, ranked(100), neverPreempting)
	c.pass(6 * time.Minute) // starvationAfter: 5m
	require.Equal(c.t, 1, c.recorder.count("PodGroup g GangKeepsNodes", "now keeps 1 nodes"))
	return gang
}

func neverPreempting(p *st.PodWrapper) *st.PodWrapper { return p.PreemptionPolicy(v1.PreemptNever) }

// TestGangPreemptsBesideKeptNodes: a gang for which there is room only on a node that another gang keeps preempts
// elsewhere.
func TestGangPreemptsBesideKeptNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 3, 2)
		c.bind("node-0", member("", "peer").Priority(100))
		c.bind("node-1", low("low-0"), low("low-1"))
		gang := c.keepsNode(3)
		urgent := c.createUrgent(2)
		require.Less(t, c.requireBound(urgent...), time.Minute)
		c.requireLeft([]string{"peer"}, []string{"low-0", "low-1"})
		require.Empty(t, c.boundAmong(gang...))
	})
}

// TestGangWaitsForKeptNodes: one that may not preempt is told of the kept node, makes no round, and is bound as
// soon as the node is given up.
func TestGangWaitsForKeptNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 3, 2)
		c.bind("node-0", member("", "peer").Priority(100))
		c.bind("node-1", low("low-0"), low("low-1"))
		c.keepsNode(3)
		urgent := c.createUrgent(2, neverPreempting)
		c.pass(3 * time.Minute)
		c.requireUnbound(urgent...)
		require.Contains(t, c.refused(urgent[0]), "short of cpu, or kept for another gang")
		refusals := c.recorder.count("PodGroup urgent GangRolledBack", "")
		require.Equal(t, refusals, c.recorder.count("PodGroup urgent GangRolledBack", "1 node kept for another gang"))
		c.waitFor(2*time.Minute, time.Second, "has its turn", func() bool { return len(c.boundAmong(urgent...)) == 2 })
	})
}

// TestNominatedMembersComeToKeptNodes: a gang has preempted on a node before another begins to keep it.
func TestNominatedMembersComeToKeptNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"bindRehearsal": "Never"}`, 2)
		c.server.Graceful.Store(true)
		c.bind("node-0", low("low", 2).TerminationGracePeriodSeconds(120))
		c.createGang("g", 2, ranked(100), neverPreempting)
		c.pass(4 * time.Minute)
		urgent := c.createUrgent(2)
		c.pass(90 * time.Second)
		require.Equal(t, 1, c.recorder.count("PodGroup g GangKeepsNodes", ""))
		c.finish("low")
		require.Less(t, c.requireBound(urgent...), 10*time.Second)
	})
}

// TestOlderGangTakesKeptNodesOver: a gang that comes before another one does not wait for it.
func TestOlderGangTakesKeptNodesOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "5s", "maxBackoff": "5s", "bindRehearsal": "Never", "starvationAfter": "20s"}`, 3, 1, 1)
		for i := range 3 {
			c.bind(fmt.Sprint("node-", i), member("", fmt.Sprint("peer-", i)))
		}
		c.groups.set("older", 2)
		younger := c.createGang("younger", 3)
		c.pass(40 * time.Second)
		require.Equal(t, 1, c.recorder.count("PodGroup younger GangKeepsNodes", "now keeps 1 nodes"))
		older := c.createMembers("older", 2)
		c.requireUnbound(older...)
		require.Less(t, c.requireBound(older...), 35*time.Second)
		require.Equal(t, 1, c.recorder.count("PodGroup older GangKeepsNodes", "now keeps 1 nodes"))
		require.Empty(t, c.boundAmong(younger...))
	})
}
