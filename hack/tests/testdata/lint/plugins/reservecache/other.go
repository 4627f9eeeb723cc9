// Package reservecache imports the pack and its neighbour.
package reservecache

import (
	"zonewise.dev/plugins/permitgate"        // want depguard
	"zonewise.dev/plugins/zonespread/counts" // want depguard
)

// What the imports are used for does not matter.
var (
	_ permitgate.Empty
	_ = counts.UIDs
)
