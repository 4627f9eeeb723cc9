// Package metrics declares the metrics of the controller of ZoneSurvivals. It links no scheduler, unlike the
// controller, so that what only describes them does not either.
package metrics

import (
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
)

const subsystem = "survival"

// Prefix is that of the names of these metrics.
const Prefix = metrics.Namespace + "_" + subsystem + "_"

// The controller sends the gauges of each ZoneSurvival, and observes how long a round takes; the helps say the rest.
var (
	Survives = metrics.NewGaugeDesc(subsystem, "survives",
		"Whether the protected pods of a ZoneSurvival would all run again after each loss: 1 when True, "+
			"0 when False; absent when Unknown.",
		[]string{"zonesurvival"}, compbasemetrics.ALPHA)
	Computed = metrics.NewGaugeDesc(subsystem, "computed_timestamp_seconds",
		"When the cluster was read from which the answer about a ZoneSurvival was computed, "+
			"in seconds since 1970.",
		[]string{"zonesurvival"}, compbasemetrics.ALPHA)
	Waiting = metrics.NewGaugeDesc(subsystem, "waiting_pods",
		"Protected pods of a ZoneSurvival that would wait after the loss of a zone; an empty zone stands for "+
			"the worst loss of nodes.",
		[]string{"zonesurvival", "lost_zone"}, compbasemetrics.ALPHA)
	Margin = metrics.NewGaugeDesc(subsystem, "margin_ratio",
		"What is free in a zone after the loss of another one, or of nodes if that is empty, as a fraction of "+
			"what its usable nodes have, by resource.",
		[]string{"zonesurvival", "lost_zone", "zone", "resource"}, compbasemetrics.ALPHA)
	Held = metrics.NewGaugeDesc(subsystem, "held",
		"What the reservation of a ZoneSurvival holds and no pod uses, by resource: CPUs, bytes, or places for pods; "+
			"absent without spec.hold.",
		[]string{"zonesurvival", "resource"}, compbasemetrics.ALPHA)
	MissingPods = metrics.NewGaugeDesc(subsystem, "missing_pods",
		"Protected pods of a ZoneSurvival for which no room is held or free in some loss, by the zone where "+
			"they would be; absent without spec.hold.",
		[]string{"zonesurvival", "zone"}, compbasemetrics.ALPHA)

	Serving = metrics.NewGaugeDesc(subsystem, "serving_ratio",
		"The least share of a protected workload's replicas that is ready outside of a zone, "+
			"which may be cut off but not gone.",
		[]string{"zonesurvival", "zone"}, compbasemetrics.ALPHA)

	RoundDuration = metrics.NewHistogram(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "round_duration_seconds",
		Help:    "Time to replay all losses that ZoneSurvivals ask for.",
		Buckets: compbasemetrics.ExponentialBuckets(1, 2, 12), StabilityLevel: compbasemetrics.ALPHA,
	})
)
