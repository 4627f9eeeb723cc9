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
	Pods = metrics.NewGaugeDesc(subsystem, "pods",
		"Pods that have a deletion cost of the controller, as last seen.",
		nil, compbasemetrics.ALPHA)
	Waiting = metrics.NewGaugeDesc(subsystem, "waiting_pods",
		"Pods whose deletion cost is to be written or taken away, and was not yet when the controller last looked.",
		nil, compbasemetrics.ALPHA)
	LeftAlone = metrics.NewGaugeDesc(subsystem, "left_alone_replicasets",
		"ReplicaSets of policies with scaleDownPolicy KeepSpread that have pods with a deletion cost of somebody else.",
		nil, compbasemetrics.ALPHA)
	Writes = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "writes_total",
		Help:           "Deletion costs that were written or taken away, by what the API server has answered: accepted or refused.",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
)
