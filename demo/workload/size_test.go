package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSizesHaveRoomForAllInWhatIsLeft: three zones, of which one is lost.
func TestSizesHaveRoomForAllInWhatIsLeft(t *testing.T) {
	small := Shape{Capacity: Resources{CPU: 4000, Memory: 4000}, count: 3}
	large := Shape{Capacity: Resources{CPU: 8000, Memory: 8000}, count: 1}
	gpu := Shape{Capacity: Resources{CPU: 4000, Memory: 4000, GPU: 1}, count: 1}
	quarter := Resources{CPU: 1000, Memory: 1000}
	for _, tc := range []struct {
		name   string
		claim  claim
		nodes  int // without slack
		extra  int
		device int
	}{
		{"five of them to a node in the mean", claim{each: quarter, replicas: 80}, 8, slackNodes, slackNodes},
		{"two to a node", claim{each: quarter, replicas: 80, maxPerNode: 2}, 20, slackNodes, slackNodes},
		{"on large nodes only", claim{each: Resources{CPU: 5000}, replicas: 4}, 8, slackNodes, slackNodes},
		{"with a device", claim{each: Resources{GPU: 1}, replicas: 80}, 0, slackNodes, 40 + 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes := zoneNodes([2]pool{{small, large}, {gpu}}, 3, []claim{tc.claim})
			require.Len(t, nodes, tc.nodes+tc.extra+tc.device)
			require.Equal(t, gpu, nodes[len(nodes)-tc.device])
			require.NotEqual(t, gpu, nodes[len(nodes)-tc.device-1])
		})
	}
}
