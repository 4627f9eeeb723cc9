package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// owned makes a pod one of a controller.
func owned(p *st.PodWrapper, controller types.UID) *st.PodWrapper {
	owner := job
	owner.UID = controller
	p.OwnerReferences = []metav1.OwnerReference{owner}
	return p
}

// succeed lets bound pods succeed now.
func (c *cluster) succeed(names ...string) {
	c.t.Helper()
	for _, name := range names {
		pod, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
		require.NoError(c.t, err)
		pod.Status.Phase = v1.PodSucceeded
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Time{Time: c.clock.Now()}}},
		}}
		_, err = c.client.CoreV1().Pods("default").UpdateStatus(c.t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(c.t, err)
	}
}

// TestReplacementBesideASucceededDriver: the only pod of one of the gang's Jobs has succeeded. A quorum that it is part
// of lacks it then, which the event says; one of the workers alone does not.
func TestReplacementBesideASucceededDriver(t *testing.T) {
	for _, tt := range []struct {
		minMember int32
		bound     bool
	}{{4, false}, {3, true}} {
		t.Run(fmt.Sprint("a quorum of ", tt.minMember), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startGangCluster(t, slowBackoff, 4)
				c.groups.set("g", tt.minMember)
				names := []string{"driver", "worker-0", "worker-1", "worker-2"}
				c.create(owned(member("g", names[0], 0), "driver"))
				for _, name := range names[1:] {
					c.create(owned(member("g", name), "workers"))
				}
				c.requireBound(names...)
				c.pass(time.Minute)
				c.succeed("driver")
				c.quiet()
				c.delete("worker-2")
				c.create(owned(member("g", "worker-3"), "workers"))
				c.quiet()
				c.pass(10 * time.Second)
				if tt.bound {
					c.requireBound("worker-3")
					return
				}
				c.requireUnbound("worker-3")
				c.requireEvent("PodGroup g TooFewMembers", "1 have succeeded, which count as long as their controller has others in the gang")
			})
		})
	}
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
	for lost := 1; lost <= 2; lost++ {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startGangCluster(t, slowBackoff, 1, 1, 1, 1)
				names := c.createGang("g", 4)
				c.requireBound(names...)
				for i := range lost {
					c.create(member("", fmt.Sprintf("stranger-%d", i)))
				}
				c.quiet()
				for i := range lost {
					pod, err := c.client.CoreV1().Pods("default").Get(t.Context(), names[i], metav1.GetOptions{})
					require.NoError(t, err)
					require.NoError(t, c.client.CoreV1().Nodes().Delete(t.Context(), pod.Spec.NodeName, metav1.DeleteOptions{}))
					c.quiet()
					c.delete(names[i])
				}
				c.quiet()
				var late []string
				for i := range lost {
					late = append(late, fmt.Sprintf("late-%d", i))
					c.create(member("g", late[i]))
				}
				c.quiet()
				for i := range lost {
					c.addNode(fmt.Sprintf("repaired-%d", i), 1)
					c.quiet()
				}
				c.requireBound(late...)
				c.requireUnbound("stranger-0", "stranger-1")
			})
		})
	}
}
