// Package parity may import k8s.io/kubernetes too.
package parity

import "k8s.io/kubernetes/pkg/util/parsers"

var _ = parsers.ParseImageName

// Name is all that it has.
const Name = "parity"
