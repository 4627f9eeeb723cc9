package board

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

const scraped = `# HELP scheduler_cache_size [ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.
# TYPE scheduler_cache_size gauge
scheduler_cache_size{type="assumed_pods"} 2
scheduler_cache_size{type="nodes"} 9
scheduler_cache_size{type="pods"} 40
# TYPE zonewise_reservecache_assumed_pods gauge
zonewise_reservecache_assumed_pods 3
# TYPE zonewise_reservecache_pods gauge
zonewise_reservecache_pods 40
# TYPE zonewise_reservecache_nodes gauge
zonewise_reservecache_nodes 9
# TYPE zonewise_reservecache_ghost_nodes gauge
zonewise_reservecache_ghost_nodes 1
# TYPE zonewise_reservecache_drift_checks_total counter
zonewise_reservecache_drift_checks_total 17
# TYPE zonewise_reservecache_drift_nodes gauge
zonewise_reservecache_drift_nodes 4
# TYPE zonewise_reservecache_unsettled_nodes gauge
zonewise_reservecache_unsettled_nodes 5
`

func TestParseMetrics(t *testing.T) {
	got, err := ParseMetrics([]byte(scraped))
	require.NoError(t, err)
	require.Equal(t, Metrics{Assumed: 3, CacheAssumed: 2, Pods: 40, Nodes: 9, Ghosts: 1, Checks: 17, Drift: 4, Unsettled: 5}, got)
	require.False(t, got.Clean())
	require.True(t, Metrics{Pods: 40, Checks: 1}.Clean())
}

func TestMetricsThatAreNotExportedAreNotZero(t *testing.T) {
	got, err := ParseMetrics([]byte("scheduler_cache_size{type=\"nodes\"} 9\n"))
	require.NoError(t, err)
	for name, value := range map[string]float64{"Assumed": got.Assumed, "CacheAssumed": got.CacheAssumed, "Drift": got.Drift, "Checks": got.Checks} {
		require.True(t, math.IsNaN(value), name)
	}
	require.False(t, got.Clean())
}

func TestParseMetricsRefusesWhatIsNoMetrics(t *testing.T) {
	_, err := ParseMetrics([]byte("<html>\n"))
	require.ErrorContains(t, err, "metrics: ")
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte(scraped))
	f.Add([]byte("zonewise_reservecache_pods{a=\"\\\"} NaN 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseMetrics(text)
		if err != nil && m != (Metrics{}) {
			t.Fatalf("an error and values: %+v", m)
		}
	})
}
