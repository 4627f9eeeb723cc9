package app

import (
	"k8s.io/apiserver/pkg/server/signals"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/metrics/prometheus/feature"
)

// notifyStop returns a channel that is closed when the process is asked to end.
func notifyStop() <-chan struct{} { return signals.SetupSignalHandler() }

// exportGates has the metrics say which feature gates are on.
func exportGates(gates featuregate.MutableFeatureGate) { gates.AddMetrics(feature.RecordFeatureInfo) }
