// Package zonespread imports its neighbours, and what lies above it.
package zonespread

import (
	"k8s.io/kubernetes/pkg/util/parsers" // want depguard

	"zonewise.dev/cmd/zonewise/words"          // want depguard
	"zonewise.dev/plugins/permitgate"          // want depguard
	"zonewise.dev/plugins/reservecache/ledger" // want depguard
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/sim" // want depguard
)

// What the imports are used for does not matter.
var (
	_ = parsers.ParseImageName
	_ = words.Name + sim.Name
	_ permitgate.Empty
	_ ledger.Empty
	_ = counts.UIDs
)
