package command

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/internal/program"
)

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "text":
				fmt.Fprintln(cmd.OutOrStdout(), "zonewise", version.Get())
				return nil
			case show.JSON, show.YAML:
				return show.Object(cmd.OutOrStdout(), output, "", version.Get())
			}
			return program.Usage(fmt.Errorf("--output: must be text, json or yaml, got %q", output))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	completeFlag(cmd, "output", "text", show.JSON, show.YAML)
	return cmd
}
