// Package show may import k8s.io/kubernetes and whatever is below it.
package show

import (
	"k8s.io/kubernetes/pkg/util/parsers"

	"zonewise.dev/cmd/zonewise/words"
)

var _ = parsers.ParseImageName

// Name is all that it has.
const Name = words.Name
