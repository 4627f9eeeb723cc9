package framework

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// partlyBoundGang leaves a gang of three with one bound member behind, and no room for the others, as a
// scheduler does that ends in the middle of a release. A new scheduler runs with the args.
func partlyBoundGang(t *testing.T, args string) *cluster {
	t.Helper()
	c := startGangCluster(t, args, 1)
	c.stop()
	c.groups.set("g", 3)
	c.create(member("g", "g-0").Node("node-0"), member("g", "g-1"), member("g", "g-2"))
	c.start(withArgs(args))
	return c
}

func TestGangThatStaysBoundInPartIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := partlyBoundGang(t, `{"recoveryTimeout": "1s", "initialBackoff": "4m", "maxBackoff": "4m"}`)
		c.requireEvent("PodGroup g GangPartlyBound", "1 of 3 members have been bound for 1s, and the other 2 cannot join them")
		c.requireEvent("PodGroup g GangPartlyBound", "the bound members keep running")

		// It is never too late.
		c.addNode("new", 2)
		c.requireBound("g-0", "g-1", "g-2")
	})
}

// TestPodsOfAnEarlierJobDoNotCount towards the quorum of the next, neither where it is bound in part nor where it has
// lost a member.
func TestPodsOfAnEarlierJobDoNotCount(t *testing.T) {
	inBubbles(t, map[string]bool{"stranded": true, "depleted": false}, func(t *testing.T, waits bool) {
		c := startGangCluster(t, slowBackoff, 1)
		c.stop()
		c.groups.set("g", 2)
		c.bind("node-0", owned(member("g", "old-0", 0), "old"), owned(member("g", "old-1", 0), "old"), owned(member("g", "next-0"), "next"))
		c.setPhase(v1.PodSucceeded, "old-0", "old-1")
		if waits {
			c.create(owned(member("g", "next-1"), "next"))
		}
		c.start(withArgs(`{"recoveryTimeout": "1s"}`))
		if waits {
			c.requireEvent("PodGroup g GangPartlyBound", "1 of 2 members have been bound for 1s")
		} else {
			c.requireEvent("PodGroup g GangPartlyBound", "needs 2 members, 1 exist, 1 of them bound")
		}
	})
}

// TestMembersThatFinishOneByOne are no reason to worry about the others, whoever made the pods.
func TestMembersThatFinishOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"recoveryTimeout": "1s"}`, 4)
		names := c.createGang("g", 3)
		c.requireBound(names...)
		c.setPhase(v1.PodSucceeded, "g-2")
		c.requireStatus("g", v1alpha1.PodGroupScheduling, 0, 1, 0)
		c.pass(2 * time.Second)
		c.quiet()
		require.Zero(t, c.recorder.count("", "GangPartlyBound"))

		c.delete("g-1")
		c.requireEvent("PodGroup g GangPartlyBound", "needs 3 members, 1 exist, 1 of them bound")
	})
}

// TestFailedBindKeepsItsNode: the member stays nominated to the node, goes there again, and the gang ends whole.
func TestFailedBindKeepsItsNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		var refuse atomic.Bool
		refuse.Store(true)
		c.refuseBinds(func(pod string) error {
			if pod == "g-1" && refuse.Load() {
				return errors.New("a mishap")
			}
			return nil
		})
		names := c.createGang("g", 3)
		c.requireBound("g-0", "g-2")
		c.requireConditions("a mishap", "g-1")
		c.soonEqual("node-0", func() any { return c.nominatedNode("g-1") })
		c.create(member("", "thief"))
		c.requireUnbound("thief")
		refuse.Store(false)
		c.requireBound(names...)
		c.requireUnbound("thief")
	})
}

// TestNominationsOfAnEarlierScheduler are taken back: nothing is planned for these members here.
func TestNominationsOfAnEarlierScheduler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 3)
		c.stop()
		c.groups.set("g", 4)
		c.createMembers("g", 3, func(p *st.PodWrapper) *st.PodWrapper { return p.NominatedNodeName("node-0") })
		c.create(member("g", "g-3"))
		c.start(withArgs(slowBackoff))
		c.soon(func() bool {
			// The scheduler hears of it last.
			return !slices.ContainsFunc(c.listPods(""), func(p v1.Pod) bool { return p.Status.NominatedNodeName != "" }) && c.nominated("node-0") == 0
		})
		c.requireRoomFor(3)
	})
}

// TestOwnerChoosesHowMembersAreReplaced: a running gang has lost two of three, and there is room for one.
func TestOwnerChoosesHowMembersAreReplaced(t *testing.T) {
	for value, bound := range map[string]int{"": 0, podgroup.ReplacementsTogether: 0, podgroup.ReplacementsOneByOne: 1, "one-by-one": 0} {
		t.Run(value, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startGangCluster(t, `{"initialBackoff": "1s", "starvationAfter": "24h"}`, 1, 1, 1)
				if value != "" {
					c.groups.annotate("g", map[string]string{podgroup.ReplacementsAnnotation: value})
				}
				c.requireBound(c.createGang("g", 3)...)
				node := c.nodeOf("g-2")
				c.delete("g-1", "g-2")
				c.bind(node, member("", "other").Priority(100))
				c.create(member("g", "g-3"), member("g", "g-4"))
				c.pass(5 * time.Second)
				require.Len(t, c.boundAmong("g-3", "g-4"), bound)
				if value == "one-by-one" {
					c.requireEvent("PodGroup g InvalidReplacements", `must be Together or OneByOne`)
				}
				c.delete("other")
				c.pass(5 * time.Second)
				c.requireBound("g-3", "g-4")
			})
		})
	}
}
