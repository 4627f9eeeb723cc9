// Package metrics declares the metrics of what is moved. It links no scheduler, unlike the controller.
package metrics

import (
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
)

const subsystem = "rebalance"

// Prefix is that of the names of these metrics.
const Prefix = metrics.Namespace + "_" + subsystem + "_"

// The gauges of each ZoneRebalance, as its status is, and how long a plan takes.
var (
	Excess = metrics.NewGaugeDesc(subsystem, "excess_pods",
		"How many pods were more than a rule allows in their zone when a ZoneRebalance was last planned.",
		[]string{"zonerebalance"}, compbasemetrics.ALPHA)
	Moves = metrics.NewGaugeDesc(subsystem, "moves",
		"Moves in the status of a ZoneRebalance, which has those of the plan and of the last hour, by state.",
		[]string{"zonerebalance", "state"}, compbasemetrics.ALPHA)
	Stopped = metrics.NewGaugeDesc(subsystem, "stopped",
		"Whether the plan of a ZoneRebalance, or its evictions of gangs, were stopped and have not been resumed yet: "+
			"1 or 0.",
		[]string{"zonerebalance"}, compbasemetrics.ALPHA)

	Evictions = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "evictions_total",
		Help:           "Evictions of pods that were asked for, by what the API server has answered: accepted or refused.",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
	PlanDuration = metrics.NewHistogram(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "plan_duration_seconds",
		Help: "Time to plan the moves of a ZoneRebalance.", Buckets: compbasemetrics.ExponentialBuckets(0.25, 2, 13),
		StabilityLevel: compbasemetrics.ALPHA,
	})
)
