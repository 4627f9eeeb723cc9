// Command scheduler may import k8s.io/kubernetes.
package main

import (
	"fmt"

	"k8s.io/kubernetes/pkg/util/parsers"

	"zonewise.dev/demo/show" // want depguard
	"zonewise.dev/plugins"
	"zonewise.dev/test/parity" // want depguard
)

var _ = show.Name + parity.Name

func main() {
	fmt.Println(parsers.ParseImageName(plugins.Name))
}
