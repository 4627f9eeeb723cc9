package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"zonewise.dev/internal/demo/cluster"
	"zonewise.dev/internal/demo/run"
	"zonewise.dev/internal/demo/workload"
)

const demoHelp = `Start a real control plane on loopback (etcd, kube-apiserver,
kube-controller-manager, and kwok for the nodes) with the Zonewise scheduler,
let a workload drawn from published production traces arrive over three zones,
drain one of them, bring it back, and print a board of what came of it. All of it
can be watched in a browser, at the address that is printed first; the last page is
saved with the board's checks.

The board is computed from the API server's objects and the scheduler's metrics.
Nothing is left behind: Ctrl-C ends everything at any moment.

Exit codes: 0 all that must be true is true; 1 the demo could not be carried
through; 2 a flag is wrong; 3 an invariant is broken, and named; 130 interrupted.`

func newDemo() *cobra.Command {
	var opts run.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch the scheduler place a real workload over three zones and lose one",
		Long:  demoHelp,
		Example: `  zonewise demo
  zonewise demo --scale 0.1 --timeout 20m
  zonewise demo --keep
  zonewise demo -q -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if opts.Self, err = os.Executable(); err != nil {
				return fmt.Errorf("find this executable: %w", err)
			}
			if opts.BinDir == "" {
				opts.BinDir = filepath.Dir(opts.Self)
			}
			opts.Assets = os.Getenv(cluster.AssetsVariable)
			opts.Out, opts.Progress = cmd.OutOrStdout(), cmd.ErrOrStderr()
			opts.Live = isTerminal(opts.Progress) && !noColor()
			opts.Width = func() int { return width(opts.Progress) }
			opts.ColorOut = isTerminal(opts.Out) && !noColor()
			opts.ColorProgress = opts.Live
			return run.Run(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.Float64Var(&opts.Scale, "scale", workload.DefaultScale, "share of the traces' live population to run, above 0, at most 1")
	flags.IntVar(&opts.Nodes, "nodes", 0, "number of nodes; 0 takes as many as the workload needs with one zone lost")
	flags.Uint64Var(&opts.Seed, "seed", 1, "decides the order in which the workload arrives")
	flags.StringVar(&opts.BinDir, "bin-dir", "", "directory of the binaries (default: that of this one); $"+cluster.AssetsVariable+" overrides it for etcd and kube-apiserver")
	flags.IntVar(&opts.Port, "port", 0, "port of the API server on 127.0.0.1; 0 takes a free one")
	flags.IntVar(&opts.BoardPort, "board-port", 0, "port of the live page on 127.0.0.1; 0 takes a free one")
	flags.StringVar(&opts.Report, "report", "demo-report.html", "HTML file for the closing page; empty writes none")
	flags.DurationVar(&opts.Timeout, "timeout", 10*time.Minute, "give up when the board is not there after this long")
	flags.BoolVar(&opts.Keep, "keep", false, "leave the cluster up after the board, until Ctrl-C")
	flags.StringVarP(&opts.Format, "output", "o", run.Text, "format of the board: text or json")
	flags.BoolVarP(&opts.Quiet, "quiet", "q", false, "print the board only")
	return cmd
}
