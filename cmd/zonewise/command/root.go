package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"zonewise.dev/internal/program"
)

// errNotSurvived says that a simulation broke a promise that --fail-on names. Its report has been printed.
var errNotSurvived = errors.New("")

// errPartial says that a simulation has no failure to report, and did not see all of the cluster.
var errPartial = errors.New("what the simulation did not see may decide")

var exitCodes = program.Codes{errNotSurvived: 4, errPartial: 5}

// Main runs the command line with the arguments, the program's name left out, and returns the exit code. The registry
// has plugins of a scheduler of the caller's own, which a configuration may then name; it may be nil.
func Main(args []string, registry frameworkruntime.Registry) int {
	root := newRoot(registry)
	root.SetArgs(args)
	return program.Run(root, exitCodes)
}

// newRoot returns the command line with all its commands.
func newRoot(registry frameworkruntime.Registry) *cobra.Command {
	root := program.Root(&cobra.Command{
		Use:     "zonewise",
		Short:   "Zone-aware scheduling for Kubernetes, from the command line",
		Version: version.Get().String(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	})
	if name := programName(); name != root.Use {
		// Cobra takes the first word as the name; this gives help and completion the rest.
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	}
	root.SetVersionTemplate("zonewise {{.Version}}\n")
	root.AddCommand(newStatus(), newExplain(registry), newSimulate(registry), newBoard(), newSnapshot(), newVersion())
	return root
}

// exactlyOneArg refuses any number of arguments but one.
func exactlyOneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return program.Usage(fmt.Errorf("name one %s, got %d arguments", what, len(args)))
		}
		return nil
	}
}
