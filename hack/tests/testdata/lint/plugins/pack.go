// Package plugins is the one place that may join the plugins.
package plugins

import (
	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/zonespread/counts"
)

// What the imports are used for does not matter.
var (
	_ permitgate.Empty
	_ ledger.Empty
	_ = counts.UIDs
)

// Name is all that it has.
const Name = "pack"
