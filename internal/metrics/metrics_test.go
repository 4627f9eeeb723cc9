package metrics_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"zonewise.dev/internal/metrics"
)

func newGauge(name string) *compbasemetrics.Gauge {
	return compbasemetrics.NewGauge(&compbasemetrics.GaugeOpts{
		Namespace: metrics.Namespace, Name: name, Help: "A gauge of a test.", StabilityLevel: compbasemetrics.ALPHA,
	})
}

func TestMustRegisterOncePerCollector(t *testing.T) {
	g := newGauge("test_once")
	metrics.MustRegister(g)
	metrics.MustRegister(g)
	g.Set(3)

	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	found := 0
	for _, f := range families {
		if f.GetName() == "zonewise_test_once" {
			found++
			require.InDelta(t, 3.0, f.GetMetric()[0].GetGauge().GetValue(), 0)
		}
	}
	require.Equal(t, 1, found)
}

func TestMustRegisterRefusesTwoOwnersOfOneName(t *testing.T) {
	metrics.MustRegister(newGauge("test_owner"))
	require.Panics(t, func() { metrics.MustRegister(newGauge("test_owner")) })
}
