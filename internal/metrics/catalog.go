package metrics

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/component-base/metrics"
)

// Kind is the type of a metric, in Prometheus' terms.
type Kind string

// The kinds.
const (
	Gauge     Kind = "gauge"
	Counter   Kind = "counter"
	Histogram Kind = "histogram"
)

// Entry describes a metric.
type Entry struct {
	Name      string // in full
	Kind      Kind
	Help      string
	Labels    []string
	Stability metrics.StabilityLevel
	Buckets   []float64 // of a Histogram: upper bounds, in the unit that the name ends with
}

var (
	catalogMu sync.Mutex // guards catalog
	catalog   = map[string]Entry{}
)

// Catalog returns the metrics that the program's packages declare, sorted by name. It may be called from
// several goroutines.
func Catalog() []Entry {
	catalogMu.Lock()
	defer catalogMu.Unlock()
	entries := make([]Entry, 0, len(catalog))
	for _, e := range catalog {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return entries
}

func declare(
	kind Kind, namespace, subsystem, name, help string, labels []string, stability metrics.StabilityLevel,
	buckets []float64,
) {
	e := Entry{
		Name: metrics.BuildFQName(namespace, subsystem, name), Kind: kind, Help: help,
		Labels: slices.Clone(labels), Stability: stability, Buckets: slices.Clone(buckets),
	}
	if e.Stability == "" {
		e.Stability = metrics.ALPHA // what component-base takes it for
	}
	catalogMu.Lock()
	defer catalogMu.Unlock()
	catalog[e.Name] = e
}

// NewGauge declares a gauge.
func NewGauge(o *metrics.GaugeOpts) *metrics.Gauge {
	declare(Gauge, o.Namespace, o.Subsystem, o.Name, o.Help, nil, o.StabilityLevel, nil)
	return metrics.NewGauge(o)
}

// NewGaugeVec declares a gauge with labels.
func NewGaugeVec(o *metrics.GaugeOpts, labels []string) *metrics.GaugeVec {
	declare(Gauge, o.Namespace, o.Subsystem, o.Name, o.Help, labels, o.StabilityLevel, nil)
	return metrics.NewGaugeVec(o, labels)
}

// NewCounter declares a counter.
func NewCounter(o *metrics.CounterOpts) *metrics.Counter {
	declare(Counter, o.Namespace, o.Subsystem, o.Name, o.Help, nil, o.StabilityLevel, nil)
	return metrics.NewCounter(o)
}

// NewCounterVec declares a counter with labels.
func NewCounterVec(o *metrics.CounterOpts, labels []string) *metrics.CounterVec {
	declare(Counter, o.Namespace, o.Subsystem, o.Name, o.Help, labels, o.StabilityLevel, nil)
	return metrics.NewCounterVec(o, labels)
}

// NewHistogram declares a histogram.
func NewHistogram(o *metrics.HistogramOpts) *metrics.Histogram {
	declare(Histogram, o.Namespace, o.Subsystem, o.Name, o.Help, nil, o.StabilityLevel, o.Buckets)
	return metrics.NewHistogram(o)
}

// NewHistogramVec declares a histogram with labels.
func NewHistogramVec(o *metrics.HistogramOpts, labels []string) *metrics.HistogramVec {
	declare(Histogram, o.Namespace, o.Subsystem, o.Name, o.Help, labels, o.StabilityLevel, o.Buckets)
	return metrics.NewHistogramVec(o, labels)
}

// NewGaugeDesc declares a gauge that a collector computes when metrics are gathered.
func NewGaugeDesc(subsystem, name, help string, labels []string, stability metrics.StabilityLevel) *metrics.Desc {
	declare(Gauge, Namespace, subsystem, name, help, labels, stability, nil)
	return metrics.NewDesc(metrics.BuildFQName(Namespace, subsystem, name), help, labels, nil, stability, "")
}
