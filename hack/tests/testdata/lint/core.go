//go:build ignore

// Package core is copied to where each pure core is: it reads the clock, logs, and imports the framework.
package core

import (
	"time"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework" // want depguard
)

var _ fwk.Code

// Tell logs the time. That it takes a logger, for a helper, is no breach.
func Tell(logger klog.Logger) {
	now := time.Now()               // want forbidigo
	logger.Info("Tick", "now", now) // want forbidigo
	klog.InfoS("Tick", "now", now)  // want forbidigo
}
