package framework

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		runInBubble(t, value, func(t *testing.T) {
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
	}
}

// TestReplacementBesideASucceededDriver: the only pod of one of the gang's Jobs has succeeded. A quorum that it is part
// of lacks it then, which the event says; one of the workers alone does not.
func TestReplacementBesideASucceededDriver(t *testing.T) {
	inBubbles(t, map[string]int32{"in the quorum": 4, "beside it": 3}, func(t *testing.T, minMember int32) {
		c := startGangCluster(t, slowBackoff, 4)
		c.groups.set("g", minMember)
		names := []string{"driver", "worker-0", "worker-1", "worker-2"}
		c.create(owned(member("g", names[0], 0), "driver"))
		for _, name := range names[1:] {
			c.create(owned(member("g", name), "workers"))
		}
		c.requireBound(names...)
		c.pass(time.Minute)
		c.editPod("driver", func(pod *v1.Pod) {
			pod.Status.Phase = v1.PodSucceeded
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{
				State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Time{Time: c.clock.Now()}}},
			}}
		})
		c.quiet()
		c.delete("worker-2")
		c.create(owned(member("g", "worker-3"), "workers"))
		c.quiet()
		c.pass(10 * time.Second)
		if minMember == 3 {
			c.requireBound("worker-3")
			return
		}
		c.requireUnbound("worker-3")
		c.requireEvent("PodGroup g TooFewMembers", "1 have succeeded, which count as long as their controller has others in the gang")
	})
}

// TestRoomThatAnotherGangGivesUp: a member that is scheduled like any pod found no node because one was kept for
// another gang, and is tried again when that gang gives it up.
func TestRoomThatAnotherGangGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 1, 1, 1)
		c.server.Graceful.Store(true)
		c.start(withArgs(preempting))
		c.bind("node-1", member("", "victim").Priority(60))
		c.groups.set("b", 2)
		c.bind("node-2", member("b", "b-0").Priority(1000))
		c.quiet()
		c.groups.set("a", 2)
		c.create(member("a", "a-0").Priority(100), member("a", "a-1").Priority(100))
		c.requireEvent("PodGroup a GangPreempts", "")
		c.create(member("b", "b-1").Priority(50))
		c.requireUnbound("b-1")
		c.groups.delete("a")
		c.finish("a-0", "a-1")
		c.requireBound("b-1")
	})
}

// TestReplacementKeepsTheGangsPlace: pods of the same priority that have waited for longer do not take the room that
// comes back for members of a running gang.
func TestReplacementKeepsTheGangsPlace(t *testing.T) {
	inBubbles(t, map[string]int{"one": 1, "two": 2}, func(t *testing.T, lost int) {
		c := startGangCluster(t, slowBackoff, 1, 1, 1, 1)
		names := c.createGang("g", 4)
		c.requireBound(names...)
		c.createPlain("stranger", lost)
		c.quiet()
		for i := range lost {
			c.deleteNode(c.nodeOf(names[i]))
			c.quiet()
			c.delete(names[i])
		}
		c.quiet()
		late := []string{"late-0", "late-1"}[:lost]
		for _, name := range late {
			c.create(member("g", name))
		}
		c.quiet()
		for i := range lost {
			c.addNode(fmt.Sprintf("repaired-%d", i), 1)
			c.quiet()
		}
		c.requireBound(late...)
		c.requireUnbound("stranger-0", "stranger-1")
	})
}
