package framework

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/features"

	"zonewise.dev/test/build"
)

// TestResizesThatWait: a bound pod whose resize waits for room goes through all plugins once more, on its own node, and
// makes room there. None of them takes or gives up anything by that: the pod's reservation, and its gang, are as
// before.
func TestResizesThatWait(t *testing.T) {
	for _, name := range []string{"web-0", "g-0", "n-0"} {
		nativeBubble(t, name, func(t *testing.T) {
			c := newPackCluster(t, 8)
			c.start(withArgs(guarded))
			c.reservations.apply(reservation("r", "web", 1, guarantee))
			c.pod("web-0", "web", "1", nil)
			c.create(member("", "filler", 2).Priority(-10))
			c.requireBound("web-0", "filler")
			c.requireBound(c.createGang("g", 2)...)
			c.requireBound(c.createNativeGang("n", 2)...)
			c.requireSlots("r", 1, 1)
			c.quiet()
			before := c.mishap.tried(name)

			c.editPod(name, func(pod *v1.Pod) {
				build.Request(v1.ResourceCPU, "3")(pod)
				pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred})
			})
			c.soon(func() bool { return len(c.listPods("filler")) == 0 })
			c.pass(time.Minute)
			// Once there is room, kube-scheduler's own cache refuses the pod before Reserve, since it has it, and it is
			// tried again and again.
			require.Greater(t, c.mishap.tried(name), before)

			require.Equal(t, "a1", c.nodeOf(name))
			c.requireSlots("r", 1, 1)
			c.requireSettled()
			for _, gang := range []string{"g", "n"} {
				require.Zero(t, c.recorder.count("PodGroup "+gang+" GangRolledBack", ""))
			}
			c.create(nativeMember("n", "n-2"))
			require.Less(t, c.requireBound("n-2"), time.Second, "the gang waits for no member")
		}, features.InPlacePodVerticalScalingSchedulerPreemption)
	}
}
