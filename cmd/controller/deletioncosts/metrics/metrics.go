// Package metrics declares the metrics of deletion costs. It links no scheduler, unlike the controller.
package metrics

import (
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
)

const subsystem = "deletioncosts"

// Prefix is that of the names of these metrics.
const Prefix = metrics.Namespace + "_" + subsystem + "_"

// The metrics of the part.
var (
	Pods = metrics.NewGauge(&compbasemetrics.GaugeOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "pods",
		Help:           "Pods that have a deletion cost of the controller, as last seen.",
		StabilityLevel: compbasemetrics.ALPHA,
	})
	Writes = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "writes_total",
		Help: "Deletion costs that were written or taken away, by what the API server has answered: accepted or refused.",

		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
)
