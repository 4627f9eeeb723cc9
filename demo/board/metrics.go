package board

import (
	"bytes"
	"fmt"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the values of the scheduler's metrics that the board judges. A
// value that the scheduler does not export is NaN.
type Metrics struct {
	// Assumed is the number of pods that the ledger holds as assumed, and
	// CacheAssumed that of kube-scheduler's own cache.
	Assumed, CacheAssumed float64
	// Pods and Nodes are how many the ledger accounts for. Ghosts are nodes
	// that it keeps because of pods on them although they do not exist.
	Pods, Nodes, Ghosts float64
	// Checks counts the comparisons of ledger and scheduler snapshot. Drift
	// is on how many nodes the two differ for good, Unsettled on how many
	// they differed just now.
	Checks, Drift, Unsettled float64
}

// Names of the metrics, as the scheduler exports them.
const (
	assumedMetric   = "zonewise_reservecache_assumed_pods"
	podsMetric      = "zonewise_reservecache_pods"
	nodesMetric     = "zonewise_reservecache_nodes"
	ghostsMetric    = "zonewise_reservecache_ghost_nodes"
	checksMetric    = "zonewise_reservecache_drift_checks_total"
	driftMetric     = "zonewise_reservecache_drift_nodes"
	unsettledMetric = "zonewise_reservecache_unsettled_nodes"
	cacheMetric     = "scheduler_cache_size"
)

// Clean reports whether nothing is assumed and ledger and snapshot are equal.
func (m Metrics) Clean() bool {
	return m.Assumed == 0 && m.CacheAssumed == 0 && m.Drift == 0 && m.Unsettled == 0
}

// ParseMetrics reads the text that a Prometheus endpoint serves.
func ParseMetrics(text []byte) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return Metrics{}, fmt.Errorf("metrics: %w", err)
	}
	value := func(name string) float64 { return sum(families[name], nil) }
	return Metrics{
		Assumed: value(assumedMetric), CacheAssumed: sum(families[cacheMetric], map[string]string{"type": "assumed_pods"}),
		Pods: value(podsMetric), Nodes: value(nodesMetric), Ghosts: value(ghostsMetric),
		Checks: value(checksMetric), Drift: value(driftMetric), Unsettled: value(unsettledMetric),
	}, nil
}

// sum adds the values of a family's series that carry the labels; NaN when
// there is none.
func sum(family *dto.MetricFamily, labels map[string]string) float64 {
	total, found := 0.0, false
	for _, m := range family.GetMetric() {
		if !carries(m, labels) {
			continue
		}
		found = true
		switch {
		case m.Gauge != nil:
			total += m.GetGauge().GetValue()
		case m.Counter != nil:
			total += m.GetCounter().GetValue()
		case m.Untyped != nil:
			total += m.GetUntyped().GetValue()
		}
	}
	if !found {
		return math.NaN()
	}
	return total
}

func carries(m *dto.Metric, labels map[string]string) bool {
	left := len(labels)
	for _, pair := range m.GetLabel() {
		if want, ok := labels[pair.GetName()]; ok && want == pair.GetValue() {
			left--
		}
	}
	return left == 0
}
