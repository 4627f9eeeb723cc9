package framework

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
