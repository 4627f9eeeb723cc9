package check

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

const scraped = `# TYPE scheduler_preemption_victims histogram
scheduler_preemption_victims_bucket{le="1"} 1
scheduler_preemption_victims_bucket{le="+Inf"} 2
scheduler_preemption_victims_sum 3
scheduler_preemption_victims_count 2
# TYPE scheduler_pod_scheduling_sli_duration_seconds histogram
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="1"} 8
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="2"} 8
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="+Inf"} 8
scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="1"} 4
scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 8
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="2",le="1"} 0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="2",le="2"} 2
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="2",le="+Inf"} 2
scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="2"} 3
scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"} 2
`

func TestParseMetrics(t *testing.T) {
	m, err := ParseMetrics([]byte(scraped))
	require.NoError(t, err)
	require.InDelta(t, 3, m.PreemptionVictims(), 0)
	require.True(t, math.IsNaN(Metrics{}.PreemptionVictims()), "what is not exported is not 0")
	require.InDelta(t, 0.625, m.WaitQuantile(0.5), 0.001)
	require.InDelta(t, 1.95, m.WaitQuantile(0.99), 0.001)
	_, err = ParseMetrics([]byte("{"))
	require.ErrorContains(t, err, "metrics: ")
}
