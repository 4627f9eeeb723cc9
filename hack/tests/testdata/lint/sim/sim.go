// Package sim may import k8s.io/kubernetes and the plugins, and nothing above it.
package sim

import (
	"k8s.io/kubernetes/pkg/util/parsers"

	"zonewise.dev/cmd/zonewise/words" // want depguard
	"zonewise.dev/demo/show"          // want depguard
	"zonewise.dev/plugins"
)

// What the imports are used for does not matter.
var (
	_ = parsers.ParseImageName
	_ = words.Name + show.Name
)

// Name is all that it has.
const Name = plugins.Name
