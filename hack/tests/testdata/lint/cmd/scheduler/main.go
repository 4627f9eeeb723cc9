// Command scheduler may import k8s.io/kubernetes.
package main

import (
	"fmt"

	"k8s.io/kubernetes/pkg/util/parsers"

	"zonewise.dev/plugins"
)

func main() {
	fmt.Println(parsers.ParseImageName(plugins.Name))
}
