package permitgate

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

var job = metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job-uid", Controller: ptr.To(true)}

// createJob creates the members of a gang as the pods of one Job.
func (c *cluster) createJob(t *testing.T, group string, size int) []string {
	t.Helper()
	names := make([]string, size)
	for i := range size {
		names[i] = fmt.Sprintf("%s-%d", group, i)
		c.createOwned(t, group, names[i], job)
	}
	return names
}

func (c *cluster) createOwned(t *testing.T, group, name string, owner metav1.OwnerReference) {
	t.Helper()
	pod := member(group, name)
	pod.OwnerReferences = []metav1.OwnerReference{owner}
	c.create(t, pod)
}

// run sets the phase of pods, as kubelets do.
func (c *cluster) run(t *testing.T, phase v1.PodPhase, names ...string) {
	t.Helper()
	for _, name := range names {
		pod, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		pod.Status.Phase = phase
		_, err = c.client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
}

func (c *cluster) requireStatus(t *testing.T, group string, phase v1alpha1.PodGroupPhase, running, succeeded, failed int32) {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		s := c.groups.status(group)
		require.Equal(ct, phase, s.Phase)
		require.Equal(ct, [3]int32{running, succeeded, failed}, [3]int32{s.Running, s.Succeeded, s.Failed})
	}, soon, tick)
}

func TestStatusFollowsTheGang(t *testing.T) {
	t.Parallel()
	c := startCluster(t, slowBackoff, 2)
	c.groups.set("g", 3)
	c.requireStatus(t, "g", v1alpha1.PodGroupPending, 0, 0, 0)
	names := c.createJob(t, "g", 3)
	c.requireStatus(t, "g", v1alpha1.PodGroupScheduling, 0, 0, 0)
	require.Equal(t, "default/train", c.groups.status("g").OccupiedBy)
	started := c.groups.status("g").ScheduleStartTime
	require.False(t, started.IsZero())

	c.addNode(t, "new", 1)
	c.requireBound(t, names...)
	c.run(t, v1.PodRunning, names...)
	c.requireStatus(t, "g", v1alpha1.PodGroupRunning, 3, 0, 0)
	c.run(t, v1.PodSucceeded, names[0])
	c.requireStatus(t, "g", v1alpha1.PodGroupRunning, 2, 1, 0)
	c.run(t, v1.PodSucceeded, names[1:]...)
	c.requireStatus(t, "g", v1alpha1.PodGroupFinished, 0, 3, 0)
	require.Equal(t, started, c.groups.status("g").ScheduleStartTime)
	c.delete(t, names...)
	c.pass(time.Second)
	c.quiet(t)
	require.Equal(t, v1alpha1.PodGroupFinished, c.groups.status("g").Phase)
}

func TestStatusIsLeftToAnother(t *testing.T) {
	t.Parallel()
	c := startCluster(t, `{"managePodGroupStatus": false}`, 2)
	names := c.createGang(t, "g", 2)
	c.requireBound(t, names...)
	c.run(t, v1.PodRunning, names...)
	c.pass(time.Second)
	c.quiet(t)
	require.Empty(t, c.groups.status("g").Phase)
}

// TestReplacementAfterAnotherMemberHasCompleted is the case of kubernetes issue 142330: a gang's Job loses
// a pod after another one has completed. The replacement must run although minMember pods do not live.
func TestReplacementAfterAnotherMemberHasCompleted(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"same scheduler": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			// The fake API server goes on showing finished pods to the scheduler, so that they keep their room.
			c := startCluster(t, slowBackoff, 5)
			c.groups.set("g", 3)
			names := c.createJob(t, "g", 3)
			c.requireBound(t, names...)
			c.run(t, v1.PodRunning, names...)
			c.run(t, v1.PodSucceeded, "g-0")
			c.run(t, v1.PodFailed, "g-1")
			if restart {
				c.stop()
				c.start(t, slowBackoff)
			}
			c.createOwned(t, "g", "g-1-again", job)
			c.requireBound(t, "g-1-again")
		})
	}
}

// TestCompletedJobDoesNotOpenTheGateForTheNext: the pods of a Job that has completed lie about, and the
// next Job uses the same PodGroup.
func TestCompletedJobDoesNotOpenTheGateForTheNext(t *testing.T) {
	t.Parallel()
	c := startCluster(t, slowBackoff, 4)
	c.groups.set("g", 2)
	names := c.createJob(t, "g", 2)
	c.requireBound(t, names...)
	c.run(t, v1.PodSucceeded, names...)
	c.requireStatus(t, "g", v1alpha1.PodGroupFinished, 0, 2, 0)

	next := job
	next.Name, next.UID = "next", "next-uid"
	c.createOwned(t, "g", "next-0", next)
	c.requireUnbound(t, "next-0")
	c.createOwned(t, "g", "next-1", next)
	c.requireBound(t, "next-0", "next-1")
}
