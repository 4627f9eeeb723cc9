package run

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"zonewise.dev/demo/workload"
	"zonewise.dev/internal/program"
)

// ExitCodes are those of zonewise-demo beside the usual ones.
var ExitCodes = program.Codes{ErrBroken: 3}

const help = `Start a real control plane on loopback (etcd, kube-apiserver,
Kubernetes' controllers, and kwok for the nodes) with the Zonewise scheduler. A
workload from published production traces arrives: services that are spread over three
zones, one of them by a ZoneSpreadPolicy, and gangs. A ZoneSurvival says whether all
services would run again after the loss of any zone. Another one holds the room for
one of them while batch work fills the rest. Then a zone is lost and comes back, and a
ZoneRebalance moves the replicas of a service back to it. A board says whether the
certificate was right. You can watch all of it in a browser, at the address that is
printed once the control plane runs. The last page is saved with the board's checks.

The board is read from the API server and the scheduler's metrics. Nothing is left
behind: Ctrl-C ends everything at any moment.

Exit codes: 0 all checks hold; 1 the demo failed; 2 a flag is wrong; 3 a check failed,
and the message names it; 130 interrupted.`

// NewCommand returns the command line of zonewise-demo.
func NewCommand() *cobra.Command {
	var (
		opts   Options
		seed   uint64
		format string
	)
	cmd := program.Root(&cobra.Command{
		Use:     "zonewise-demo",
		Version: version.Get().String(),
		Short:   "Watch the scheduler place a real workload in three zones and survive the loss of one, as predicted",
		Long:    help,
		Example: `  zonewise-demo
  zonewise-demo --keep
  zonewise-demo -q -o json`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if opts.Timeout <= 0 {
				return program.Usage(fmt.Errorf("--timeout: must be positive, got %s", opts.Timeout))
			}
			if format != "json" && format != "text" {
				return program.Usage(fmt.Errorf("--output: must be text or json, got %q", format))
			}
			if opts.BinDir == "" {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("find this executable: %w", err)
				}
				opts.BinDir = filepath.Dir(self)
			}
			opts.BinDir, err = filepath.Abs(opts.BinDir)
			if err != nil {
				return fmt.Errorf("--bin-dir: %w", err)
			}
			opts.JSON, opts.Plan = format == "json", workload.NewPlan(workload.DemoScale, seed)
			opts.Out, opts.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return Run(cmd.Context(), opts)
		},
	})
	flags := cmd.Flags()
	flags.Uint64Var(&seed, "seed", 1, "decides the order in which the workload arrives")
	flags.StringVar(&opts.BinDir, "bin-dir", "", "directory of the binaries (default: that of this one)")
	flags.Uint16Var(&opts.Port, "port", 0, "port of the API server on 127.0.0.1; 0 takes a free one")
	flags.Uint16Var(&opts.BoardPort, "board-port", 0, "port of the live page on 127.0.0.1; 0 takes a free one")
	flags.StringVar(&opts.Report, "report", "demo-report.html", "HTML file for the closing page; empty writes none")
	flags.DurationVar(&opts.Timeout, "timeout", 10*time.Minute, "give up if the board is not complete after this long")
	flags.BoolVar(&opts.Keep, "keep", false, "leave the cluster up after the board, until Ctrl-C")
	flags.StringVarP(&format, "output", "o", "text", "format of the board: text or json")
	flags.BoolVarP(&opts.Quiet, "quiet", "q", false, "print the board only")
	return cmd
}
