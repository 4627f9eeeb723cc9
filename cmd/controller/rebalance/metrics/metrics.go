// Package metrics declares the metrics of what is moved. It links no scheduler, unlike the controller.
package metrics

import (
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
)

const subsystem = "rebalance"

// Prefix is that of the names of these metrics.
const Prefix = metrics.Namespace + "_" + subsystem + "_"

// The gauges of each ZoneRebalance, as its status is, and how long a search takes.
var (
	Excess = metrics.NewGaugeDesc(subsystem, "excess_pods",
		"How many pods are more than a rule allows in their zone, by the status of a ZoneRebalance.",
		[]string{"zonerebalance"}, compbasemetrics.ALPHA)
	Moves = metrics.NewGaugeDesc(subsystem, "moves",
		"Moves in the status of a ZoneRebalance, by state: those of the last hour and the last one of each workload, and "+
			"those that are planned.",
		[]string{"zonerebalance", "state"}, compbasemetrics.ALPHA)
	Stopped = metrics.NewGaugeDesc(subsystem, "stopped",
		"Whether a ZoneRebalance begins no moves since those of several workloads have failed in a row: 1 or 0.",
		[]string{"zonerebalance"}, compbasemetrics.ALPHA)

	Evictions = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "evictions_total",
		Help:           "Evictions of pods that were asked for, by what the API server has answered: accepted or refused.",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
	SearchDuration = metrics.NewHistogram(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "search_duration_seconds",
		Help:    "Time to search the next moves of a ZoneRebalance, or all of them for its plan.",
		Buckets: compbasemetrics.ExponentialBuckets(0.25, 2, 13), StabilityLevel: compbasemetrics.ALPHA,
	})
)
