package framework

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// slowBackoff makes a gang that only time wakes miss every bound of these tests.
const slowBackoff = `{"initialBackoff": "4m", "maxBackoff": "4m"}`

func TestGangBindsWholeInAnyOrderOfCreation(t *testing.T) {
	inBubbles(t, map[string]func(t *testing.T, c *cluster, pods []*st.PodWrapper){
		"PodGroup first": func(_ *testing.T, c *cluster, pods []*st.PodWrapper) {
			c.groups.set("g", 4)
			c.create(pods...)
		},
		"pods first": func(_ *testing.T, c *cluster, pods []*st.PodWrapper) {
			c.create(pods...)
			c.requireUnbound("g-0", "g-1", "g-2", "g-3")
			c.groups.set("g", 4)
		},
		"PodGroup between the pods": func(_ *testing.T, c *cluster, pods []*st.PodWrapper) {
			c.create(pods[:2]...)
			c.groups.set("g", 4)
			c.create(pods[2])
			c.requireUnbound("g-0", "g-1", "g-2")
			c.create(pods[3])
		},
	}, func(t *testing.T, create func(t *testing.T, c *cluster, pods []*st.PodWrapper)) {
		c := startGangCluster(t, slowBackoff, 2, 2)
		pods := make([]*st.PodWrapper, 4)
		for i := range pods {
			pods[i] = member("g", fmt.Sprintf("g-%d", i))
			if i%2 == 1 {
				pods[i].SchedulerName("batch") // the profiles share their gangs
			}
		}
		create(t, c, pods)
		t.Logf("bound after %s", c.requireBound("g-0", "g-1", "g-2", "g-3"))
	})
}

func TestPodsWithoutAGang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 8)
		native := member("no-such-group", "native")
		native.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new(string)}
		c.create(member("", "plain"), native)
		c.requireBound("plain", "native")
	})
}

func TestGangThatDoesNotFitHoldsNothingAndTakesRoomAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		names := c.createGang("g", 4)
		c.requireEvent("PodGroup g GangRolledBack", "needs 4, at most 3 fit: 1 node short of cpu")
		c.requireUnbound(names...)
		for _, name := range names {
			require.Zero(t, c.mishap.times(name), "no member takes what the gang cannot use")
		}
		c.requireRoomFor(3)
		c.requireUnbound(names...)

		c.addNode("new", 1)
		t.Logf("bound %s after the room was there", c.requireBound(names...))
	})
}

func TestGangTakesRoomOfADeletedPodAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 4)
		c.create(member("", "other"))
		c.requireBound("other")
		names := c.createGang("g", 4)
		c.requireEvent("PodGroup g GangRolledBack", "needs 4, at most 3 fit: 1 node short of cpu")
		c.requireUnbound(names...)
		require.Zero(t, c.recorder.count("Pod g-", "GangRolledBack"), "a condition says so")

		c.delete("other")
		t.Logf("bound %s after the room was there", c.requireBound(names...))
	})
}

func TestTwoGangsThatEachTakeHalf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"initialBackoff": "200ms"}`, 6)
		for i := range 4 {
			for _, g := range []string{"a", "b"} {
				c.create(member(g, fmt.Sprintf("%s-%d", g, i)))
			}
		}
		c.groups.set("a", 4)
		c.groups.set("b", 4)
		a := []string{"a-0", "a-1", "a-2", "a-3"}
		b := []string{"b-0", "b-1", "b-2", "b-3"}
		c.soon(func() bool { return len(c.boundAmong(a...)) == 4 || len(c.boundAmong(b...)) == 4 })
		first, second := a, b
		if len(c.boundAmong(b...)) == 4 {
			first, second = b, a
		}
		c.requireUnbound(second...)
		c.delete(first...)
		c.requireBound(second...)
	})
}

// TestMemberThatComesDuringAProposal: it is not in the proposal that refuses its gang, and its arrival comes before the
// backoff that it ends.
func TestMemberThatComesDuringAProposal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 4)
		c.start(withArgs(slowBackoff), withHolds(duringLooks(sync.OnceFunc(func() {
			c.create(member("g", "g-3"))
			time.Sleep(time.Second) // the plugin has seen it
		}))))
		c.groups.set("g", 3)
		c.create(member("g", "g-0").NodeSelector(map[string]string{"no": "such-node"}), member("g", "g-1"), member("g", "g-2"))
		c.requireBound("g-1", "g-2", "g-3")
	})
}

// TestStarvingGangKeepsNodes: a gang that has been refused for long keeps what becomes free, piece by piece, and gives
// it back when its time is over. One that would not fit beside pods of a higher priority keeps nothing.
func TestStarvingGangKeepsNodes(t *testing.T) {
	const starving = `{"initialBackoff": "10s", "maxBackoff": "10s", "starvationAfter": "20s", "gangPreemption": false}`
	type test struct {
		high     bool // a pod of a higher priority has one of the nodes
		gives    bool // the third piece comes too late
		collects bool
	}
	inBubbles(t, map[string]test{
		"collects":            {collects: true},
		"gives back":          {collects: true, gives: true},
		"would not fit alone": {high: true},
	}, func(t *testing.T, tt test) {
		c := startGangCluster(t, starving, 1, 1, 1)
		for i, node := range []string{"node-0", "node-1", "node-2"} {
			p := member("", fmt.Sprintf("small-%d", i))
			if tt.high && i == 2 {
				p.Priority(9)
			}
			c.create(p.Node(node))
		}
		c.quiet()
		gang := c.createGang("g", 3)
		c.requireEvent("PodGroup g GangRolledBack", "short of cpu")
		c.requireUnbound(gang...)
		for range 4 { // backoffs
			c.pass(10 * time.Second)
			c.quiet()
		}
		require.Equal(t, tt.collects, c.recorder.count("PodGroup g GangKeepsNodes", "") == 1)
		c.create(member("", "other"))
		c.requireUnbound("other")
		c.delete("small-0")
		if !tt.collects {
			c.requireBound("other")
			return
		}
		c.quiet()
		c.delete("small-1")
		c.requireUnbound(append(gang, "other")...)
		require.Contains(t, c.refused("other"), "the gang default/g keeps this node")
		if tt.gives {
			c.pass(time.Minute)
			c.requireBound("other")
			return
		}
		c.delete("small-2")
		c.requireBound(gang...)
		c.requireUnbound("other")
	})
}

// duringLooks is called at each look at what is held on a node. It implements permitgate.Holds, and holds nothing.
type duringLooks func()

func (f duringLooks) Kept(*v1.Pod, fwk.NodeInfo, []v1.ResourceName, []int64) { f() }

// Own implements permitgate.Holds.
func (duringLooks) Own(*v1.Pod, fwk.NodeInfo, []v1.ResourceName, []int64) {}

// Owns implements permitgate.Holds.
func (duringLooks) Owns(*v1.Pod) bool { return false }

// looks counts the looks at what is held on nodes. It implements permitgate.Holds, and holds nothing.
type looks struct{ atomic.Int64 }

func (l *looks) Kept(*v1.Pod, fwk.NodeInfo, []v1.ResourceName, []int64) { l.Add(1) }

// Own implements permitgate.Holds.
func (*looks) Own(*v1.Pod, fwk.NodeInfo, []v1.ResourceName, []int64) {}

// Owns implements permitgate.Holds.
func (*looks) Owns(*v1.Pod) bool { return false }

// TestStarvingGangCostsOtherPodsNothing: while a gang collects, cycles of other pods look at no node for its sake but
// those that their filters look at, however many members it has and whatever it has collected. Pods of a higher
// priority take what they want.
func TestStarvingGangCostsOtherPodsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const free, members = 30, 50
		c := newGangCluster(t)
		for i := range free {
			c.addNode(fmt.Sprintf("node-%d", i), 1)
		}
		for i := range members - free { // to be waited for
			c.addNode(fmt.Sprintf("busy-%d", i), 1)
		}
		var l looks
		c.start(withArgs(`{"initialBackoff": "4m", "maxBackoff": "4m", "starvationAfter": "1m", "gangPreemption": false}`), withHolds(&l))
		for i := range members - free {
			c.bind(fmt.Sprintf("busy-%d", i), member("", fmt.Sprintf("small-%d", i)))
		}
		c.quiet()
		gang := c.createGang("g", members)
		c.requireEvent("PodGroup g GangRolledBack", "short of cpu")
		c.eventually("it collects", func() bool { return c.recorder.count("PodGroup g GangKeepsNodes", "") == 1 })
		c.quiet()
		before := l.Load()
		for i := range 10 {
			c.create(member("", fmt.Sprintf("other-%d", i)))
			require.Contains(t, c.refused(fmt.Sprintf("other-%d", i)), "the gang default/g keeps this node")
		}
		require.LessOrEqual(t, l.Load()-before, int64(10*2*members), "two for each node that a filter looks at")
		c.create(member("", "high").Priority(1))
		c.requireBound("high")
		c.requireUnbound(gang...)
	})
}

// TestGangThatWaitsForAnotherToLeave takes its place soon: from the deletion of the other's last pod no more time
// passes than the pause after a look that is cheap, and the time after which it is woken once more. Backoffs and the
// queue's flush take longer.
func TestGangThatWaitsForAnotherToLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 2, 2)
		first := c.createGang("first", 4)
		c.requireBound(first...)
		second := c.createGang("second", 4)
		c.requireEvent("PodGroup second GangRolledBack", "short of cpu")
		c.requireUnbound(second...)
		c.delete(first...)
		began := c.clock.Now()
		for len(c.boundAmong(second...)) < len(second) {
			require.Less(t, c.clock.Since(began), 300*time.Millisecond)
			c.pass(time.Millisecond)
		}
	})
}

// TestNoTimersInAGangsWay: what an idle cluster has room for is bound as soon as the API server and the scheduler have
// done their parts, with the rehearsal of a bind, too.
func TestNoTimersInAGangsWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{}`, 10, 10)
		c.pass(time.Second)
		c.groups.set("g", 10)
		names := make([]string, 10)
		for i := range names {
			names[i] = fmt.Sprint("g-", i)
			c.create(member("g", names[i]))
		}
		require.Zero(t, c.requireBound(names...), "time passes only when nothing is left to do before a timer")
	})
}

// TestMembersThatDifferInSelectedLabels: all members keep away from the leader's host, of which there is one. The
// others share hosts, whichever of the pods comes first.
func TestMembersThatDifferInSelectedLabels(t *testing.T) {
	inBubbles(t, map[string]int{"first": 0, "second": 1, "third": 2, "last": 3}, func(t *testing.T, leader int) {
		c := startGangCluster(t, slowBackoff, 8, 8, 8)
		c.requireBound(c.createGang("g", 4, func(p *st.PodWrapper) *st.PodWrapper {
			if p.Pod.Name == fmt.Sprint("g-", leader) {
				p.Label("role", "leader")
			}
			return p.PodAntiAffinity(v1.LabelHostname, &metav1.LabelSelector{MatchLabels: map[string]string{"role": "leader"}}, st.PodAntiAffinityWithRequiredReq)
		})...)
	})
}

// TestNominationBelowOneOfTheMembers: what is kept for a pod counts for a member only if that pod's priority is not
// lower than the member's, whatever the priorities of the others are.
func TestNominationBelowOneOfTheMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 2, 1)
		c.server.Graceful.Store(true)
		c.start(withArgs(preempting))
		c.bind("node-0", member("", "victim").Priority(1))
		c.quiet()
		c.groups.set("middle", 1)
		c.create(member("middle", "middle-0", 2).Priority(50))
		c.requireKept("node-0", 1)
		c.groups.set("g", 2)
		c.create(member("g", "high").Priority(100), member("g", "low").Priority(10))
		c.requireBound("high", "low")
		c.requireUnbound("middle-0")
	})
}
