package app

import (
	"k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/featuregate"
)

// notifyStop returns a channel that is closed when the process is asked to end.
func notifyStop() <-chan struct{} { return server.SetupSignalHandler() }

// exportGates has the metrics say which feature gates are on.
func exportGates(gates featuregate.MutableFeatureGate) { gates.AddMetrics() }
