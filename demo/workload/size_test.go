package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var oneShape = []shape{{each: Resources{MilliCPU: 4000, MemoryMiB: 4000}, pool: cpuNodes, count: 1}}

func quarter(replicas, maxPerNode int, spread bool) []claim {
	return []claim{{each: Resources{MilliCPU: 1000, MemoryMiB: 1000}, replicas: replicas, maxPerNode: maxPerNode, spread: spread, home: cpuNodes}}
}

func TestFitCountsWhatFindsNoNode(t *testing.T) {
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
			got := newFit(oneShape, poolSizes{cpuNodes: 1}, 3, tc.claims).run()
			require.Equal(t, tc.missing, got.total())
		})
	}
}

func TestFitKeepsPodsWithoutDevicesOffGPUNodes(t *testing.T) {
	shapes := []shape{{each: Resources{MilliCPU: 4000, MemoryMiB: 4000, GPU: 1}, pool: gpuNodes, count: 1}}
	got := newFit(shapes, poolSizes{gpuNodes: 5}, 3, quarter(2, 0, true)).run()
	require.Equal(t, 2, got.total())
}

func TestSizePoolsGrowsUntilEverythingFits(t *testing.T) {
	sizes, err := sizePools(oneShape, 3, quarter(40, 0, true))
	require.NoError(t, err)
	// 20 pods in each zone that is left, four to a node.
	require.Equal(t, 5+slackNodes, sizes[cpuNodes])
}
