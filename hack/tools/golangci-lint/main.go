// Command golangci-lint is golangci-lint of the version pinned in this module's
// go.mod, with Kubernetes' logcheck and kube-api-linter linked in.
//
// Module plugins have to be compiled into the linter, so the stock command does
// not do. "golangci-lint custom" would generate a main package like this one,
// but it clones the linter's repository at build time; a module pins it by sum.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	// Registers the linter "kubeapilinter" with golangci-lint's plugin register.
	_ "sigs.k8s.io/kube-api-linter"
	// Registers the linter "logcheck".
	_ "sigs.k8s.io/logtools/logcheck/gclplugin"
)

// linter is the module whose version this command reports as its own.
const linter = "github.com/golangci/golangci-lint/v2"

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		fmt.Fprintf(os.Stderr, "golangci-lint: %v\n", err)
		os.Exit(exitcodes.Failure)
	}
}

// buildInfo names the pinned linter version: golangci-lint's cache is keyed by it.
func buildInfo() commands.BuildInfo {
	info := commands.BuildInfo{Version: "unknown", Commit: "unknown", Date: "unknown"}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	info.GoVersion = build.GoVersion
	for _, dep := range build.Deps {
		if dep.Path == linter {
			info.Version = dep.Version
			info.Commit = dep.Sum
		}
	}
	return info
}
