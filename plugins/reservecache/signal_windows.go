package reservecache

import "os"

// dumpSignals make the plugin dump its ledger; Windows has no user-defined ones.
var dumpSignals []os.Signal
