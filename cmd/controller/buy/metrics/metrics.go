// Package metrics declares the metrics of what an autoscaler is asked for. It links no scheduler, unlike the
// controller.
package metrics

import (
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
)

const subsystem = "buy"

// Prefix is that of the names of these metrics.
const Prefix = metrics.Namespace + "_" + subsystem + "_"

// The gauges of each object with spec.buy.
var (
	Wanted = metrics.NewGaugeDesc(subsystem, "wanted_pods",
		"How many pods' room is held and unused, or missing, of an object with spec.buy.",
		[]string{"kind", "name"}, compbasemetrics.ALPHA)
	Asked = metrics.NewGaugeDesc(subsystem, "asked_pods",
		"How many pods' room an autoscaler is asked for, for an object with spec.buy.",
		[]string{"kind", "name"}, compbasemetrics.ALPHA)
)
