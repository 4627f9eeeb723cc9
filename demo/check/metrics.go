package check

import (
	"bytes"
	"fmt"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are values of the scheduler's metrics. A metric that the scheduler does not export is NaN.
type Metrics struct {
	// Assumed is the number of pods that the ledger has as assumed, CacheAssumed that of kube-scheduler's own cache.
	Assumed, CacheAssumed float64
	// Pods and Nodes are how many the ledger has.
	Pods, Nodes float64
	// Comparisons counts comparisons of the ledger with the scheduler's snapshot. Drift is how many nodes differ for good,
	// Unsettled how many differed in the last comparison.
	Comparisons, Drift, Unsettled float64
	// Victims is how many pods were preempted.
	Victims float64
}

// ParseMetrics parses the text that the scheduler serves.
func ParseMetrics(text []byte) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return Metrics{}, fmt.Errorf("metrics: %w", err)
	}
	ledger := func(name string) float64 { return sum(families["zonewise_reservecache_"+name], "") }
	return Metrics{
		Assumed: ledger("assumed_pods"), CacheAssumed: sum(families["scheduler_cache_size"], "assumed_pods"),
		Pods: ledger("pods"), Nodes: ledger("nodes"), Comparisons: ledger("drift_checks_total"),
		Drift: ledger("drift_nodes"), Unsettled: ledger("unsettled_nodes"), Victims: sum(families["scheduler_preemption_victims"], ""),
	}, nil
}

// sum adds the values of a family's series that have the label value kind, of all when it is empty: the sum of a histogram.
func sum(family *dto.MetricFamily, kind string) float64 {
	total, found := 0.0, false
	for _, m := range family.GetMetric() {
		if kind != "" && (len(m.GetLabel()) != 1 || m.GetLabel()[0].GetValue() != kind) {
			continue
		}
		found = true
		total += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
	}
	if !found {
		return math.NaN()
	}
	return total
}
