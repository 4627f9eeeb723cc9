package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
)

func TestBuildInfo(t *testing.T) {
	for stamped, want := range map[string][2]string{
		"v1.37.2+zonewise.0.1.0":     {"v1.37.2", "0.1.0"},
		"v1.37.2+zonewise.0.0.0-dev": {"v1.37.2", "0.0.0-dev"},
		"v0.0.0-master+$Format:%H$":  {"v0.0.0-master+$Format:%H$", "unknown"},
	} {
		kubernetes, zonewise := SplitVersion(stamped)
		require.Equal(t, want, [2]string{kubernetes, zonewise})
	}
	ExportBuildInfo()
	ExportBuildInfo()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "zonewise_build_info" {
			require.Len(t, family.GetMetric(), 1)
			require.InDelta(t, 1, family.GetMetric()[0].GetGauge().GetValue(), 0)
			return
		}
	}
	t.Fatal("zonewise_build_info is not served")
}
