package reservecache

import (
	"context"
	"sync"
	"time"

	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"zonewise.dev/internal/metrics"
)

const subsystem = "reservecache"

var (
	driftChecks = metrics.NewCounter(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "drift_checks_total",
		Help:           "Number of comparisons of the ledger with the scheduler's snapshot.",
		StabilityLevel: compbasemetrics.ALPHA,
	})
	expiredPods = metrics.NewCounter(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "expired_pods_total",
		Help:           "Number of assumed pods that were dropped after assumedPodTTL, since the API server showed that they take no capacity.",
		StabilityLevel: compbasemetrics.ALPHA,
	})
	reserveConflicts = metrics.NewCounter(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "reserve_conflicts_total",
		Help:           "Number of pods that Reserve sent back, since slots had been placed or used on their node after Filter.",
		StabilityLevel: compbasemetrics.ALPHA,
	})
	snapshotDuration = metrics.NewHistogram(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "snapshot_duration_seconds",
		Help:           "Time taken to bring a snapshot of the ledger up to date.",
		Buckets:        compbasemetrics.ExponentialBuckets(1e-6, 4, 10),
		StabilityLevel: compbasemetrics.ALPHA,
	})
)

// Gauges are read from the ledgers when the metrics are gathered: an age is only true at that moment, and
// a counter that is kept aside could itself drift.
var gauges = []struct {
	desc  *compbasemetrics.Desc
	value func(*reading) float64
}{
	{gauge("pods", "Number of pods in the ledger, assumed ones among them."), func(r *reading) float64 { return float64(r.pods) }},
	{gauge("assumed_pods", "Number of pods that were assumed and that the API server has not shown bound yet."), func(r *reading) float64 { return float64(r.assumed) }},
	{gauge("oldest_assumed_pod_age_seconds", "Time since the longest assumed pod was assumed; 0 when none is."), func(r *reading) float64 { return r.oldest.Seconds() }},
	{gauge("nodes", "Number of nodes in the ledger, without ghosts."), func(r *reading) float64 { return float64(r.nodes) }},
	{gauge("ghost_nodes", "Number of nodes that are gone, or not there yet, and to which pods are accounted."), func(r *reading) float64 { return float64(r.ghosts) }},
	{gauge("drift_nodes", "Number of nodes on which ledger and scheduler snapshot differ for longer than driftSettle."), func(r *reading) float64 { return float64(r.drifting) }},
	{gauge("unsettled_nodes", "Number of nodes on which ledger and scheduler snapshot differed at the last comparison, but not for longer than driftSettle."), func(r *reading) float64 { return float64(r.unsettled) }},
}

func gauge(name, help string) *compbasemetrics.Desc {
	return metrics.NewGaugeDesc(subsystem, name, help, nil, compbasemetrics.ALPHA)
}

// reading is the sum over the ledgers of all schedulers of the process, of which there is one save in
// tests.
type reading struct {
	pods, assumed, nodes, ghosts, drifting, unsettled int
	oldest                                            time.Duration
}

// collector gathers the gauges.
type collector struct {
	compbasemetrics.BaseStableCollector

	mu   sync.Mutex // guards live
	live map[*running]func() time.Time
}

var (
	collected    = &collector{live: map[*running]func() time.Time{}}
	registerOnce sync.Once
)

// exportMetrics exports the metrics of r until ctx ends.
func exportMetrics(ctx context.Context, r *running, now func() time.Time) {
	registerOnce.Do(func() {
		metrics.MustRegister(driftChecks, expiredPods, reserveConflicts, snapshotDuration)
		legacyregistry.CustomMustRegister(collected)
	})
	collected.mu.Lock()
	defer collected.mu.Unlock()
	collected.live[r] = now
	context.AfterFunc(ctx, func() {
		collected.mu.Lock()
		defer collected.mu.Unlock()
		delete(collected.live, r)
	})
}

// DescribeWithStability implements compbasemetrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *compbasemetrics.Desc) {
	for _, g := range gauges {
		ch <- g.desc
	}
}

// CollectWithStability implements compbasemetrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- compbasemetrics.Metric) {
	sum := c.read()
	for _, g := range gauges {
		ch <- compbasemetrics.NewLazyConstMetric(g.desc, compbasemetrics.GaugeValue, g.value(&sum))
	}
}

func (c *collector) read() reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum reading
	for r, now := range c.live {
		stats, drift := r.ledger.Stats(), r.drift.report()
		sum.pods += stats.Pods
		sum.assumed += stats.AssumedPods
		sum.nodes += stats.Nodes
		sum.ghosts += stats.Ghosts
		sum.drifting += len(drift.Nodes)
		sum.unsettled += drift.Unsettled
		if !stats.OldestAssumed.IsZero() {
			sum.oldest = max(sum.oldest, now().Sub(stats.OldestAssumed))
		}
	}
	return sum
}
