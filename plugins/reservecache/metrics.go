package reservecache

import (
	"context"

	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
)

const subsystem = "reservecache"

// Gauges are read from the ledgers when the metrics are gathered: an age is only true at that moment, and
// a counter that is kept aside could itself drift.
var (
	podsDesc    = gauge("pods", "Number of pods in the ledger, including assumed ones.")
	assumedDesc = gauge("assumed_pods", "Number of assumed pods that the API server has not shown bound yet.")
	oldestDesc  = gauge("oldest_assumed_pod_age_seconds", "Time since the oldest assumed pod was assumed; 0 if no pod is assumed.")
	nodesDesc   = gauge("nodes", "Number of nodes in the ledger, without ghosts.")
	ghostsDesc  = gauge("ghost_nodes", "Number of nodes that are gone, or not there yet, but have pods in the ledger.")

	collected = metrics.NewCollector((*running).collect, podsDesc, assumedDesc, oldestDesc, nodesDesc, ghostsDesc)
)

func gauge(name, help string) *compbasemetrics.Desc {
	return metrics.NewGaugeDesc(subsystem, name, help, nil, compbasemetrics.ALPHA)
}

// exportMetrics exports the metrics of r until ctx ends.
func exportMetrics(ctx context.Context, r *running) {
	collected.Export(ctx, r)
}

func (r *running) collect(send metrics.Send) {
	stats := r.ledger.Stats()
	oldest := 0.0
	if !stats.OldestAssumed.IsZero() {
		oldest = r.clock.Since(stats.OldestAssumed).Seconds()
	}
	send(podsDesc, float64(stats.Pods))
	send(assumedDesc, float64(stats.AssumedPods))
	send(oldestDesc, oldest)
	send(nodesDesc, float64(stats.Nodes))
	send(ghostsDesc, float64(stats.Ghosts))
}
