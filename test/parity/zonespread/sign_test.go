package parity

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// TestSignPodEqualsInTree: opportunistic batching is on where the in-tree plugin leaves it on, with List defaulting and
// no constraints for the pods that have none of their own. That batching the others would place them worse is shown by
// the outcomes in test/framework.
func TestSignPodEqualsInTree(t *testing.T) {
	hard, preferred := spread(1, "zone", selects("foo")), spread(1, "host", selects("foo"), soft)
	signed := 0
	for name, options := range map[string]Options{
		"System":     {System: true},
		"List, none": {},
		"List, some": {Constraints: []v1.TopologySpreadConstraint{spread(1, "zone", nil)}},
	} {
		pair, err := NewPair(t.Context(), cache.NewSnapshot(nil, nil), options)
		require.NoError(t, err)
		for _, constraints := range [][]v1.TopologySpreadConstraint{nil, {hard}, {preferred}, {hard, preferred}} {
			pod := incoming("foo", constraints...)
			want, wantStatus := pair.InTree.SignPod(t.Context(), pod)
			got, gotStatus := pair.Ours.SignPod(t.Context(), pod)
			require.Equal(t, want, got, name)
			require.Equal(t, wantStatus.Code(), gotStatus.Code(), "%s: %v", name, constraints)
			require.Equal(t, wantStatus.Message(), gotStatus.Message())
			if gotStatus.IsSuccess() {
				signed++
			}
		}
	}
	require.Equal(t, 1, signed)
}
