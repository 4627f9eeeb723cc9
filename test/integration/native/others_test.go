package native

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	"zonewise.dev/test/build"
)

// TestNativeGangsAmongOtherPods on a real API server: two gangs compete for room that one of them needs, and a gang preempts. In both GangScheduling
// alone does the same.
func TestNativeGangsAmongOtherPods(t *testing.T) {
	c := startCluster(t) // with room for four pods
	_, err := c.admin.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: urgent}, Value: 1000,
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	for _, mode := range []struct{ name, args string }{{"Guard", guarded}, {"GangScheduling alone", alone}} {
		c.run("two gangs compete, "+mode.name, mode.args, func(c *cluster) {
			gangs := map[string][]string{"a": {"a-0", "a-1", "a-2"}, "b": {"b-0", "b-1", "b-2"}}
			for _, name := range []string{"a", "b"} {
				c.createGroup(name, "", 3)
			}
			for i := range 3 { // their members come by turns
				c.createMember("a", gangs["a"][i], "")
				c.createMember("b", gangs["b"][i], "")
			}
			c.eventually("one is bound", func() bool { return len(c.bound()) == 3 })
			first, second := "a", "b"
			if strings.HasPrefix(c.bound()[0], "b") {
				first, second = second, first
			}
			require.Equal(c.t, gangs[first], c.bound())
			c.eventually("the other one is tried in vain", func() bool { return c.triedInVain(gangs[second]...) })
			require.Equal(c.t, gangs[first], c.bound())
			for _, name := range gangs[first] {
				c.delete(name)
			}
			c.eventually("the other one is bound", func() bool { return len(c.bound()) == 3 })
			require.Equal(c.t, gangs[second], c.bound())
		})

		c.run("a gang preempts, "+mode.name, mode.args, func(c *cluster) {
			for _, name := range []string{"low-0", "low-1", "low-2", "low-3"} {
				c.createPlainPod(name)
			}
			c.eventually("the node is full", func() bool { return len(c.bound()) == 4 })
			c.createGroup("n", urgent, 3)
			for _, name := range members {
				c.createMember("n", name, urgent)
			}
			c.eventually("it is bound beside one of them", func() bool { return len(c.bound()) == 4 && strings.HasPrefix(c.bound()[1], "n-") })
			require.Equal(c.t, members, c.bound()[1:])
		})
	}
}

// urgent is a priority class.
const urgent = "urgent"

// createPlainPod creates a pod of no gang, which ends at once when it is deleted.
func (c *cluster) createPlainPod(name string) {
	c.t.Helper()
	pod := build.Pod(name, "1", build.Namespace(c.namespace))
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	_, err := c.admin.CoreV1().Pods(c.namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// triedInVain reports whether the scheduler has written of all of these pods that they do not fit.
func (c *cluster) triedInVain(names ...string) bool {
	c.t.Helper()
	refused := c.podsThat(func(pod *v1.Pod) bool {
		_, condition := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
		return condition != nil && condition.Status == v1.ConditionFalse && condition.Reason == v1.PodReasonUnschedulable
	})
	return len(refused) == len(names)
}
