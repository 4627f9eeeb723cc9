// Package below imports what lies above it.
package below

import (
	"k8s.io/kubernetes/pkg/util/parsers" // want depguard

	"zonewise.dev/plugins/permitgate" // want depguard
)

// What the imports are used for does not matter.
var (
	_ = parsers.ParseImageName
	_ permitgate.Empty
)
