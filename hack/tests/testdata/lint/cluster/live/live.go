// Package live reads a cluster: it links no scheduler, and knows nothing above it.
package live

import (
	"k8s.io/kubernetes/pkg/util/parsers" // want depguard

	"zonewise.dev/cmd/zonewise/words" // want depguard
	"zonewise.dev/plugins"
	"zonewise.dev/sim" // want depguard
)

// What the imports are used for does not matter.
var (
	_ = parsers.ParseImageName
	_ = words.Name + sim.Name + plugins.Name
)
