package reservecache

import (
	"context"

	compbasemetrics "k8s.io/component-base/metrics"

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
		Help:           "Number of assumed pods that were dropped after assumedPodTTL, because the API server showed that they take no capacity.",
		StabilityLevel: compbasemetrics.ALPHA,
	})
	reserveConflicts = metrics.NewCounter(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "reserve_conflicts_total",
		Help:           "Number of pods that Reserve sent back, because slots had been placed or used on their node after Filter.",
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
var (
	podsDesc      = gauge("pods", "Number of pods in the ledger, including assumed ones.")
	assumedDesc   = gauge("assumed_pods", "Number of assumed pods that the API server has not shown bound yet.")
	oldestDesc    = gauge("oldest_assumed_pod_age_seconds", "Time since the oldest assumed pod was assumed; 0 if no pod is assumed.")
	nodesDesc     = gauge("nodes", "Number of nodes in the ledger, without ghosts.")
	ghostsDesc    = gauge("ghost_nodes", "Number of nodes that are gone, or not there yet, but have pods in the ledger.")
	driftDesc     = gauge("drift_nodes", "Number of nodes on which ledger and scheduler snapshot have differed for longer than driftSettle.")
	unsettledDesc = gauge("unsettled_nodes", "Number of nodes on which ledger and scheduler snapshot differed at the last comparison, but not for longer than driftSettle.")

	collected = metrics.NewCollector((*running).collect, podsDesc, assumedDesc, oldestDesc, nodesDesc, ghostsDesc, driftDesc, unsettledDesc)
)

func gauge(name, help string) *compbasemetrics.Desc {
	return metrics.NewGaugeDesc(subsystem, name, help, nil, compbasemetrics.ALPHA)
}

// exportMetrics exports the metrics of r until ctx ends.
func exportMetrics(ctx context.Context, r *running) {
	metrics.MustRegister(driftChecks, expiredPods, reserveConflicts, snapshotDuration)
	collected.Export(ctx, r)
}

func (r *running) collect(send metrics.Send) {
	stats, drift := r.ledger.Stats(), r.drift.report()
	oldest := 0.0
	if !stats.OldestAssumed.IsZero() {
		oldest = r.clock.Since(stats.OldestAssumed).Seconds()
	}
	send(podsDesc, float64(stats.Pods))
	send(assumedDesc, float64(stats.AssumedPods))
	send(oldestDesc, oldest)
	send(nodesDesc, float64(stats.Nodes))
	send(ghostsDesc, float64(stats.Ghosts))
	send(driftDesc, float64(len(drift.Nodes)))
	send(unsettledDesc, float64(drift.Unsettled))
}
