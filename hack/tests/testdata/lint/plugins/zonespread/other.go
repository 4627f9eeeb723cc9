// Package zonespread imports its neighbours.
package zonespread

import (
	"k8s.io/kubernetes/pkg/util/parsers" // want depguard

	"zonewise.dev/plugins/permitgate"          // want depguard
	"zonewise.dev/plugins/reservecache/ledger" // want depguard
	"zonewise.dev/plugins/zonespread/counts"
)

// What the imports are used for does not matter.
var (
	_ = parsers.ParseImageName
	_ permitgate.Empty
	_ ledger.Empty
	_ = counts.UIDs
)
