package native

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/test/build"
)

// TestKilledInTheMiddleOfARelease: a scheduler is killed when a part of a gang is bound, and then there is no room for
// the rest. Guarded, the PodGroup says so; GangScheduling alone says nothing. When there is room again, the next
// scheduler binds the rest around those that are bound.
func TestKilledInTheMiddleOfARelease(t *testing.T) {
	const size = 24
	c := startCluster(t)
	c.create(build.Node("large", "a", fmt.Sprint(size)))
	for _, mode := range []struct{ name, args string }{
		{"Guard", `{"nativeGroups": "Guard", "recoveryTimeout": "2s"}`}, {"GangScheduling alone", alone},
	} {
		c.inNamespace(mode.name, func(c *cluster) {
			first := c.startProcess(mode.args)
			names := make([]string, size)
			for i := range names {
				names[i] = fmt.Sprint("n-", i)
			}
			c.createGang(names...)
			c.eventually("some members are bound", func() bool { return len(c.bound()) >= 4 })
			require.NoError(c.t, first.Process.Kill())
			require.Error(c.t, first.Wait(), "it was killed")
			c.cordon("node", true)
			c.cordon("large", true)
			nodes := c.nodes() // now, since the API server may have had a last bind in its hands
			require.Less(c.t, len(nodes), size, "the gang was whole before the kill, so the test shows nothing")
			c.startScheduler(mode.args)
			guards := mode.args != alone
			if guards {
				c.eventually("the PodGroup says that the gang is bound in part", func() bool { return c.condition(native.ConditionPartlyBound) == metav1.ConditionTrue })
			} else {
				c.eventually("the rest was tried", func() bool { return c.probe.anyCycles() })
				require.Empty(c.t, c.condition(native.ConditionPartlyBound))
			}
			require.Equal(c.t, nodes, c.nodes())
			c.cordon("node", false)
			c.cordon("large", false)
			c.eventually("all are bound", func() bool { return len(c.bound()) == size })
			now := c.nodes()
			for name, node := range nodes {
				require.Equal(c.t, node, now[name])
			}
			if guards {
				c.eventually("the PodGroup says so", func() bool {
					return c.condition(native.ConditionReleased) == metav1.ConditionTrue && c.condition(native.ConditionPartlyBound) == metav1.ConditionFalse
				})
			}
		})
	}
}

// startProcess starts a scheduler in a process of its own, which sends ten requests a second.
func (c *cluster) startProcess(args string) *exec.Cmd {
	c.t.Helper()
	path := c.writeConfig(args, func(cfg *configv1.KubeSchedulerConfiguration) {
		cfg.ClientConnection.QPS, cfg.ClientConnection.Burst = 10, 10
	})
	cmd := exec.Command(os.Args[0], "--config="+path, "--feature-gates="+gates, "--secure-port=0")
	cmd.Env = append(os.Environ(), asScheduler+"=1")
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has usually ended
	return cmd
}

// nodes returns the nodes of the bound members.
func (c *cluster) nodes() map[string]string {
	c.t.Helper()
	nodes := map[string]string{}
	for _, pod := range c.podsThat(func(pod *v1.Pod) bool { return pod.Spec.NodeName != "" }) {
		nodes[pod.Name] = pod.Spec.NodeName
	}
	return nodes
}

func (c *cluster) cordon(node string, cordoned bool) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, cordoned)
	_, err := c.admin.CoreV1().Nodes().Patch(c.t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(c.t, err)
}
