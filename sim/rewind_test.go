package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim"
	"zonewise.dev/test/build"
)

// TestRewind: a loss is taken back, node by node, and each has the same effect as on a new copy.
func TestRewind(t *testing.T) {
	s := run(t, web(42), sim.Options{})
	s.Mark()
	require.Empty(t, sim.Changes[*v1.Pod](s))
	before := s.Objects()
	for _, node := range sim.List[*v1.Node](s) {
		loss := s.Lose(func(n *v1.Node) bool { return n.Name == node.Name })
		require.NoError(t, s.Run(t.Context()))
		gone, made := 0, 0
		for _, c := range sim.Changes[*v1.Pod](s) {
			if c.Before != nil && c.After == nil {
				gone++
				require.Equal(t, node.Name, c.Before.Spec.NodeName)
			}
			if c.Before == nil {
				made++
				require.NotEmpty(t, c.After.Spec.NodeName)
				require.Equal(t, node.Name, s.Replaced()[c.After.UID].Spec.NodeName)
			}
		}
		require.Equal(t, []int{len(loss.Displaced), len(loss.Displaced)}, []int{gone, made})
		require.Equal(t, []sim.Change[*v1.Node]{{Before: node}}, sim.Changes[*v1.Node](s))
		s.Rewind()
		require.NoError(t, s.Run(t.Context()))
		require.Equal(t, before, s.Objects())
		require.Empty(t, s.Replaced())
	}
}

// TestRewindOfABind: a pod that waited and has been bound since waits again, and is bound again when there is room.
func TestRewindOfABind(t *testing.T) {
	s := run(t, []client.Object{node("node-a", "a", "2"), pod("first", "first", "2", build.Bound("node-a")), pod("second", "second", "2")}, sim.Options{})
	s.Mark()
	for range 2 {
		first, _ := sim.Get[*v1.Pod](s, "shop", "first")
		s.Remove(first)
		require.NoError(t, s.Run(t.Context()))
		second, _ := sim.Get[*v1.Pod](s, "shop", "second")
		require.Equal(t, "node-a", second.Spec.NodeName)
		s.Rewind()
		require.NoError(t, s.Run(t.Context()))
		second, _ = sim.Get[*v1.Pod](s, "shop", "second")
		require.Empty(t, second.Spec.NodeName)
		require.Contains(t, s.WhyWaits(second), "Insufficient cpu")
	}
}

// TestDisplace: one pod is replaced, whether the copy has it or only its cluster.
func TestDisplace(t *testing.T) {
	s := run(t, web(6), sim.Options{})
	there := sim.List[*v1.Pod](s)[0]
	s.Displace(there)
	elsewhere := pod("elsewhere", "web", "1")
	elsewhere.UID, elsewhere.Spec.NodeName = "elsewhere", "gone"
	s.Displace(elsewhere)
	require.NoError(t, s.Run(t.Context()))
	require.Len(t, sim.List[*v1.Pod](s), 7)
	replaced := map[string]bool{}
	for _, was := range s.Replaced() {
		replaced[was.Name] = true
	}
	require.Equal(t, map[string]bool{there.Name: true, "elsewhere": true}, replaced)
	for _, p := range sim.List[*v1.Pod](s) {
		require.NotEmpty(t, p.Spec.NodeName)
	}
}

// TestAskAgain: a bound pod is judged as if it came now, with what it gave back. Afterwards the copy is as before.
func TestAskAgain(t *testing.T) {
	objects := append(local("15Gi", "node-a"), storageClass("local"), node("node-a", "a", "4"), node("node-b", "b", "2"))
	s := run(t, objects, sim.Options{})
	require.NoError(t, s.Add(pod("web", "web", "3", scratch("local"))))
	require.NoError(t, s.Run(t.Context()))
	p, _ := sim.Get[*v1.Pod](s, "shop", "web")
	require.Equal(t, "node-a", p.Spec.NodeName)
	before := s.Objects()
	for range 2 {
		answer, err := s.EvaluateBound(t.Context(), p)
		require.NoError(t, err)
		require.Len(t, answer.FittingNodes(), 1)
		require.Equal(t, "node-a", answer.Nodes[0].Node.Name)
		require.Positive(t, answer.Nodes[0].Score)
		require.NotEmpty(t, answer.Nodes[0].Scores)
		require.Equal(t, "NodeResourcesFit", answer.Nodes[1].Refusal.Plugin)
		require.NoError(t, s.Run(t.Context()))
		require.Equal(t, before, s.Objects())
	}
}
