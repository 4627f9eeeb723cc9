package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"zonewise.dev/internal/program"
)

// newRoot returns the command line with all its commands.
func newRoot() *cobra.Command {
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
	root.AddCommand(newStatus(), newExplain(), newSimulate(), newBoard(), newSnapshot(), newVersion())
	return root
}

// oneArg refuses any number of arguments but one.
func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return program.Usage(fmt.Errorf("name one %s, got %d arguments", what, len(args)))
		}
		return nil
	}
}
