package metrics_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"zonewise.dev/internal/metrics"
)

// TestCollector: what is live is gathered, two of a kind count as one, what has ended is gone.
func TestCollector(t *testing.T) {
	desc := metrics.NewGaugeDesc("test", "height_meters", "A height of a test.", []string{"of"}, compbasemetrics.ALPHA)
	c := metrics.NewCollector(func(from float64, send metrics.Send) {
		send(desc, from, "all")
		if from > 1 {
			send(desc, from, "tall")
		}
	}, desc)
	compare := func(want string) error {
		if want != "" {
			want = "# HELP zonewise_test_height_meters [ALPHA] A height of a test.\n# TYPE zonewise_test_height_meters gauge\n" + want
		}
		return testutil.GatherAndCompare(
			legacyregistry.DefaultGatherer, strings.NewReader(want), "zonewise_test_height_meters",
		)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.Export(ctx, 2)
	c.Export(t.Context(), 1)
	c.Export(t.Context(), 1)
	require.NoError(
		t, compare("zonewise_test_height_meters{of=\"all\"} 2\nzonewise_test_height_meters{of=\"tall\"} 2\n"),
	)
	cancel()
	require.Eventually(t, func() bool { return c.Live() == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, compare("zonewise_test_height_meters{of=\"all\"} 1\n"))
}

// TestCatalog has each metric as it was declared.
func TestCatalog(t *testing.T) {
	metrics.NewHistogramVec(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: "test", Name: "catalog_seconds", Help: "A time of a test.",
		Buckets: []float64{1, 2}, StabilityLevel: compbasemetrics.BETA,
	}, []string{"result"})
	metrics.NewCounter(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: "test", Name: "catalog_total", Help: "A count of a test.",
	})
	var found []metrics.Entry
	for _, e := range metrics.Catalog() {
		if strings.HasPrefix(e.Name, "zonewise_test_catalog") {
			found = append(found, e)
		}
	}
	require.Equal(t, []metrics.Entry{
		{
			Name: "zonewise_test_catalog_seconds", Kind: metrics.Histogram, Help: "A time of a test.",
			Labels: []string{"result"}, Stability: compbasemetrics.BETA, Buckets: []float64{1, 2},
		},
		{
			Name: "zonewise_test_catalog_total", Kind: metrics.Counter, Help: "A count of a test.",
			Stability: compbasemetrics.ALPHA,
		},
	}, found)
}
