// Package metrics declares and registers the pack's metrics where kube-scheduler serves its own.
//
// Each package declares its metrics beside the code that sets them, as package-level variables made by the constructors
// here. They have the signatures of k8s.io/component-base/metrics, and record each metric in a [Catalog], from which
// docs/metrics.md is generated and against which alerts and dashboards are checked. All names start with [Namespace],
// and they appear at the scheduler's /metrics.
package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Namespace is the first part of the name of each of the pack's metrics.
const Namespace = "zonewise"

var (
	mu         sync.Mutex // guards registered
	registered = map[metrics.Registerable]struct{}{}
)

// MustRegister adds collectors to the registry that kube-scheduler serves. It skips a
// collector that it has registered before, so the constructor of a plugin, which runs once for every
// profile, may call it each time. It panics if two collectors have the same name, which is an error in
// the program.
//
// It may be called from several goroutines.
func MustRegister(collectors ...metrics.Registerable) {
	mu.Lock()
	defer mu.Unlock()
	for _, c := range collectors {
		if _, ok := registered[c]; ok {
			continue
		}
		legacyregistry.MustRegister(c)
		registered[c] = struct{}{}
	}
}
