package survival_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
	"zonewise.dev/test/clitest"
)

// againstNodes asks for the loss of any one node.
func againstNodes(s *v1alpha1.ZoneSurvival) *v1alpha1.ZoneSurvival {
	s.Spec.Survive = v1alpha1.SurvivalLosses{Nodes: ptr.To[int32](1)}
	return s
}

// TestCertifyNodes has a small cluster for each thing that the loss of nodes comes to. The nodes a, b and c have 8
// CPUs.
func TestCertifyNodes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cluster func(c *clitest.Cluster)
		status  metav1.ConditionStatus
		message string
		// worst is the first loss, "node: waiting of displaced".
		worst string
	}{
		{
			name:    "any one node",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "a", "a", "b", "c") },
			status:  metav1.ConditionTrue, worst: "a: 0 of 2",
			message: "without any one of the 3 nodes that have pods, all 4 pods run again; at most 2 are displaced, without node a",
		},
		{
			name:    "a node without pods is no loss",
			cluster: func(c *clitest.Cluster) { c.Running("web", "2", nil, "a") },
			status:  metav1.ConditionTrue, worst: "a: 0 of 1",
			message: "without any one of the 1 nodes that have pods, all 1 pods run again; at most 1 are displaced, without node a",
		},
		{
			name: "one of the nodes",
			cluster: func(c *clitest.Cluster) {
				c.Node("small", "a", "4", "32Gi")
				c.Running("web", "5", nil, "a")
				c.Running("other", "4", nil, "b", "c")
			},
			status: metav1.ConditionFalse, worst: "a: 1 of 1",
			message: "without node a, 1 of 1 displaced pods would wait, first shop/web-1-1: 0/3 nodes are available: 3 Insufficient cpu",
		},
		{
			name: "the node's object stays, and a constraint counts it",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", clitest.Spread("web"), "a", "a", "b", "b", "c", "c")
			},
			status: metav1.ConditionFalse, worst: "a: 2 of 2",
			message: "while the object of node a still exists, 2 of 2 displaced pods would wait, first shop/web-1-1: ",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.Zones("a", "b", "c")
			tc.cluster(c)
			is := certify(t, c, againstNodes(protecting("web")), survival.Options{})
			require.Equal(t, tc.status, is.Conditions[0].Status, is.Conditions[0].Message)
			require.Contains(t, is.Conditions[0].Message, tc.message)
			require.Equal(t, int64(len(is.Losses)), is.Replayed)
			first := is.Losses[0]
			require.Empty(t, first.Zone)
			require.Equal(t, tc.worst, fmt.Sprintf("%s: %d of %d", first.Node, first.Waiting, first.Displaced))
			require.Equal(t, first.Displaced, first.Placed+first.Waiting)
			require.Equal(t, int64(1), first.Nodes)
		})
	}
}

// TestManyNodes: of many losses the status has the worst, and says how many there were.
func TestManyNodes(t *testing.T) {
	c := clitest.New()
	var on []string
	for i := range 14 {
		name := fmt.Sprintf("node-%02d", i)
		c.Node(name, "a", "20", "32Gi")
		for range i + 1 {
			on = append(on, name)
		}
	}
	c.Running("web", "1", nil, on...)
	is := certify(t, c, againstNodes(protecting("web")), survival.Options{Replays: 1})
	require.Equal(t, int64(14), is.Replayed)
	require.Len(t, is.Losses, 10)
	for i, loss := range is.Losses {
		require.Equal(t, int64(14-i), loss.Displaced)
		require.Equal(t, fmt.Sprintf("node-%02d", 13-i), loss.Node)
		require.Equal(t, []int64{280 - 20, 280 - 20 - int64(len(on))}, []int64{loss.Margin[0].Allocatable.Cpu().Value(), loss.Margin[0].Free.Cpu().Value()})
	}
}

// TestHeldRoomForNodes: room that is held for the loss of any one node is enough when other pods have taken all other
// room.
func TestHeldRoomForNodes(t *testing.T) {
	c := clitest.Zones("a", "b", "c")
	c.Running("web", "2", priority(10), "a", "a", "b", "c")
	asked := againstNodes(holding("web"))
	c = placed(t, c, hold(c, asked).Changed)
	requireUnchanged(t, hold(c, asked), "asked again, the slots are the same")
	for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
		for seed := range int64(3) {
			require.Empty(t, loseFilled(t, c, (*sim.Sim).Lose, func(n *v1.Node) bool { return n.Name == node.Name }, 100+seed, false), "after the loss of node %s", node.Name)
		}
	}
}
