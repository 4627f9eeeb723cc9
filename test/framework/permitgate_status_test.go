package framework

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

var job = metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job-uid", Controller: ptr.To(true)}

// owned makes a pod one of a controller.
func owned(p *st.PodWrapper, controller types.UID) *st.PodWrapper {
	owner := job
	owner.UID = controller
	p.OwnerReferences = []metav1.OwnerReference{owner}
	return p
}

// ofJob makes a pod one of a Job.
func ofJob(p *st.PodWrapper) *st.PodWrapper { return owned(p, job.UID) }

// setPhase sets the phase of pods, as kubelets do.
func (c *cluster) setPhase(phase v1.PodPhase, names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.editPod(name, func(pod *v1.Pod) { pod.Status.Phase = phase })
	}
}

func (c *cluster) requireStatus(group string, phase v1alpha1.PodGroupPhase, running, succeeded, failed int32) {
	c.t.Helper()
	type status struct {
		phase                      v1alpha1.PodGroupPhase
		running, succeeded, failed int32
	}
	c.soonEqual(status{phase, running, succeeded, failed}, func() any {
		s := c.groups.status(group)
		return status{s.Phase, s.Running, s.Succeeded, s.Failed}
	})
}

func TestStatusFollowsTheGang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 2)
		c.groups.set("g", 3)
		c.requireStatus("g", v1alpha1.PodGroupPending, 0, 0, 0)
		names := c.createGang("g", 3, ofJob)
		c.requireStatus("g", v1alpha1.PodGroupScheduling, 0, 0, 0)

		c.addNode("new", 1)
		c.requireBound(names...)
		c.setPhase(v1.PodRunning, names...)
		c.requireStatus("g", v1alpha1.PodGroupRunning, 3, 0, 0)
		c.setPhase(v1.PodSucceeded, names[0])
		c.requireStatus("g", v1alpha1.PodGroupRunning, 2, 1, 0)
		c.setPhase(v1.PodSucceeded, names[1:]...)
		c.requireStatus("g", v1alpha1.PodGroupFinished, 0, 3, 0)
		c.delete(names...)
		c.pass(time.Second)
		c.quiet()
		require.Equal(t, v1alpha1.PodGroupFinished, c.groups.status("g").Phase)
	})
}

func TestStatusIsLeftToAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startGangCluster(t, `{"managePodGroupStatus": false}`, 2)
		names := c.createGang("g", 2)
		c.requireBound(names...)
		c.setPhase(v1.PodRunning, names...)
		c.pass(time.Second)
		c.quiet()
		require.Empty(t, c.groups.status("g").Phase)
	})
}

// TestReplacementAfterAnotherMemberHasCompleted is the case of kubernetes issue 142330: a gang's Job loses
// a pod after another one has completed. The replacement must run although minMember pods do not live.
func TestReplacementAfterAnotherMemberHasCompleted(t *testing.T) {
	inBubbles(t, map[string]bool{"same scheduler": false, "after a restart": true}, func(t *testing.T, restart bool) {
		// The fake API server goes on showing finished pods to the scheduler, so that they keep their room.
		c := startGangCluster(t, slowBackoff, 5)
		c.requireBound(c.createGang("g", 3, ofJob)...)
		c.setPhase(v1.PodRunning, "g-2")
		c.setPhase(v1.PodSucceeded, "g-0")
		c.setPhase(v1.PodFailed, "g-1")
		if restart {
			c.restart(withArgs(slowBackoff))
		}
		c.create(ofJob(member("g", "g-1-again")))
		c.requireBound("g-1-again")
	})
}
