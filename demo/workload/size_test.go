package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	node = Shape{Capacity: Resources{CPU: 4000, Memory: 4000}, count: 1}
	gpu  = Shape{Capacity: Resources{CPU: 4000, Memory: 4000, GPU: 1}, count: 1}
)

func quarter(replicas, maxPerNode int, spread bool) []claim {
	return []claim{{each: Resources{CPU: 1000, Memory: 1000}, replicas: replicas, maxPerNode: maxPerNode, spread: spread}}
}

func TestMissingCountsWhatFindsNoNode(t *testing.T) {
	for _, tc := range []struct {
		name    string
		claims  []claim
		missing int
	}{
		// Three zones of one node each, four pods to a node; then one zone is lost.
		{"all fit in what is left", quarter(8, 0, true), 0},
		{"what the lost zone held has no room", quarter(12, 0, true), 4},
		{"not even before", quarter(13, 0, true), 1 + 4},
		{"two to a node", quarter(6, 2, true), 2},
		{"one to a node", quarter(2, 1, true), 0},
		{"without spread", quarter(8, 0, false), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, [2]int{tc.missing, 0}, missing([]Shape{node}, 3, tc.claims))
		})
	}
}

func TestPodsWithoutDevicesStayOffGPUNodes(t *testing.T) {
	require.Equal(t, [2]int{2, 0}, missing([]Shape{gpu, gpu}, 3, quarter(2, 0, true)))
}

func TestSizesGrowUntilEverythingFits(t *testing.T) {
	nodes, err := sizes([2]pool{{node}, {gpu}}, 3, quarter(40, 0, true))
	require.NoError(t, err)
	// 20 pods in each zone that is left, four to a node; and one node with devices.
	require.Len(t, nodes, 5+slackNodes+1+slackNodes)
}
