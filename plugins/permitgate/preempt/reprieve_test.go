package preempt

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// TestReprieveRunsFewFilters: where pods that do not matter surround those that must go, and where there is no pod to
// reprieve.
func TestReprieveRunsFewFilters(t *testing.T) {
	const nodes, podsPerNode = 100, 100
	const placing = 5*nodes + 2*refusalsAtLeast // with and without the pods that may go, also where a member is already, and where budgets forbid it
	for name, tt := range map[string]struct {
		blocks          func(k int) bool // a node's pod, by a port
		trials, victims int
		violated        int
	}{
		"one of a node's pods blocks": {
			blocks: func(k int) bool { return k == 33 }, trials: placing + nodes*(1+2*7) + nodes, victims: nodes,
		},
		"all of them block": {
			blocks: func(int) bool { return true }, trials: placing + reprievesAtLeast, victims: nodes * podsPerNode,
		},
		"all of them block, and have a budget": {
			blocks: func(int) bool { return true }, trials: placing + reprievesAtLeast, victims: nodes * podsPerNode, violated: nodes * podsPerNode,
		},
		"one of a node's pods blocks, and all have a budget": {
			blocks: func(k int) bool { return k == 33 }, trials: placing + nodes*(1+2*7) + nodes, victims: nodes, violated: nodes,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, asked := &scene{}, &counted{}
			for i := range nodes {
				n := s.addNode(2 * podsPerNode)
				for k := range podsPerNode {
					pod := newPod(fmt.Sprintf("low-%d-%d", i, k), 1, 1, tt.blocks(k))
					pod.Labels = map[string]string{"app": "low"}
					n.bind(pod)
				}
				s.members = append(s.members, newPod(fmt.Sprint("member-", i), 1, 3, true))
			}
			if tt.violated > 0 {
				s.budgets = append(s.budgets, disruptionBudget("default", "low", map[string]string{"app": "low"}, 0))
			}
			search := s.search(leaping())
			search.Handle = asked
			r := search.Run(t.Context())
			gone := map[types.UID]bool{}
			for _, pod := range r.Victims {
				gone[pod.UID] = true
			}
			require.Len(t, r.Nodes, nodes)
			require.Len(t, gone, tt.victims)
			require.True(t, s.holds(r.Nodes, gone))
			require.Equal(t, tt.violated, s.violations(gone))
			require.LessOrEqual(t, asked.trials, tt.trials)
		})
	}
}
