package check

import (
	"bytes"
	"fmt"
	"math"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/testutil"
)

// Metrics are the scheduler's metrics by name.
type Metrics map[string]*dto.MetricFamily

// ParseMetrics parses the text that the scheduler serves.
func ParseMetrics(text []byte) (Metrics, error) {
	families, err := testutil.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return families, nil
}

// PreemptionVictims returns how many pods were preempted, NaN if that is not exported.
func (m Metrics) PreemptionVictims() float64 {
	victims := m.histogram("scheduler_preemption_victims")
	if len(victims) == 0 {
		return math.NaN()
	}
	return victims.GetAggregatedSampleSum()
}

// WaitQuantile returns the seconds within which a share of the bound pods, between 0 and 1, came from the scheduling
// queue to a node.
func (m Metrics) WaitQuantile(share float64) float64 {
	return m.histogram("scheduler_pod_scheduling_sli_duration_seconds").Quantile(share)
}

// histogram returns the series of a histogram.
func (m Metrics) histogram(name string) (series testutil.HistogramVec) {
	for _, metric := range m[name].GetMetric() {
		series = append(series, &testutil.Histogram{Histogram: metric.GetHistogram()})
	}
	return series
}
