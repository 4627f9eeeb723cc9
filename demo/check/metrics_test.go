package check

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

const scraped = `# TYPE zonewise_reservecache_pods gauge
zonewise_reservecache_pods 40
# TYPE zonewise_reservecache_drift_checks_total counter
zonewise_reservecache_drift_checks_total 7
# TYPE scheduler_cache_size gauge
scheduler_cache_size{type="assumed_pods"} 2
scheduler_cache_size{type="nodes"} 9
# TYPE scheduler_preemption_victims histogram
scheduler_preemption_victims_bucket{le="1"} 1
scheduler_preemption_victims_bucket{le="+Inf"} 2
scheduler_preemption_victims_sum 3
scheduler_preemption_victims_count 2
`

func TestParseMetrics(t *testing.T) {
	m, err := ParseMetrics([]byte(scraped))
	require.NoError(t, err)
	require.Equal(t, []float64{40, 7, 2, 3}, []float64{m.Pods, m.Comparisons, m.CacheAssumed, m.Victims})
	require.True(t, math.IsNaN(m.Drift), "what is not exported is not 0")
	_, err = ParseMetrics([]byte("{"))
	require.ErrorContains(t, err, "metrics: ")
}
