// Package gang is a pure core that knows the time and logs it.
package gang

import (
	"time"

	"k8s.io/klog/v2" // want depguard
)

// Tell logs the time.
func Tell(logger klog.Logger) {
	logger.Info("Tick", "now", time.Now()) // want forbidigo
}
