package feature

import (
	"testing"

	"github.com/stretchr/testify/require"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// TestGatesThatAreGone: of a gate that a version of Kubernetes has no more, the caller says what it has become; of any
// other, the process does.
func TestGatesThatAreGone(t *testing.T) {
	for _, otherwise := range []bool{true, false} {
		require.Equal(t, otherwise, Enabled("ZonewiseNoSuchGate", otherwise))
	}
	gates := utilfeature.DefaultMutableFeatureGate
	require.NoError(t, gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		"ZonewiseOn":  {Default: true, PreRelease: featuregate.Beta},
		"ZonewiseOff": {Default: false, PreRelease: featuregate.Beta},
	}))
	for _, otherwise := range []bool{true, false} {
		require.True(t, Enabled("ZonewiseOn", otherwise))
		require.False(t, Enabled("ZonewiseOff", otherwise))
	}
	require.NoError(t, gates.Set("ZonewiseOff=true"))
	require.True(t, Enabled("ZonewiseOff", false), "a value is not remembered")
}
