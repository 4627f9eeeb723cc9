//go:build !windows

package reservecache

import (
	"os"
	"syscall"
)

// dumpSignals make the plugin dump its ledger. kube-scheduler dumps its cache on the same.
var dumpSignals = []os.Signal{syscall.SIGUSR2}
