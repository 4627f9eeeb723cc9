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

// Sum adds the values of a metric's series that have the labels; of a histogram, its sums. It is NaN if there is no series.
func (m Metrics) Sum(name string, labels map[string]string) float64 {
	total, found := 0.0, false
	for _, series := range m[name].GetMetric() {
		if testutil.LabelsMatch(series, labels) {
			total += series.GetGauge().GetValue() + series.GetCounter().GetValue() + series.GetHistogram().GetSampleSum()
			found = true
		}
	}
	if !found {
		return math.NaN()
	}
	return total
}

// Waited returns the seconds within which a share of the bound pods, between 0 and 1, came from the scheduling queue to a node.
func (m Metrics) Waited(share float64) float64 {
	var series testutil.HistogramVec
	for _, one := range m["scheduler_pod_scheduling_sli_duration_seconds"].GetMetric() {
		series = append(series, &testutil.Histogram{Histogram: one.GetHistogram()})
	}
	return series.Quantile(share)
}
