package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"

	"zonewise.dev/cmd/controller"
	"zonewise.dev/cmd/scheduler/app"
	"zonewise.dev/internal/metrics"
	"zonewise.dev/internal/program"
	"zonewise.dev/plugins"
)

func main() {
	metrics.ExportBuildInfo()
	if len(os.Args) > 1 && os.Args[1] == controller.Name { // kube-scheduler itself takes no arguments
		os.Exit(controller.Main(os.Args[2:], nil))
	}
	os.Exit(run(newCommand()))
}

// newCommand returns the command of kube-scheduler with the pack, and with what is checked before it runs.
func newCommand() *cobra.Command {
	cmd := app.NewSchedulerCommand(plugins.NewPack(plugins.WithFence(), plugins.WithRetriedWatches()))
	cmd.Use = program.Name()
	cmd.Long += fmt.Sprintf(`

%[1]s %[2]s is a program of its own, the controller beside the scheduler: see %[1]s %[2]s --help.`, cmd.Use, controller.Name)
	cmd.PreRunE = preflight
	// The 200 lines of usage would hide the one that says what is wrong.
	cmd.SilenceUsage = true
	cmd.SetFlagErrorFunc(program.WithFlags)
	return cmd
}

// run executes the command and returns the exit status of the process.
func run(cmd *cobra.Command) int {
	// Upstream's own handler of these signals makes a requested end look like a failure, so listen as well.
	// Upstream may get a signal first and end before this channel has it: Stop returns when no signal is
	// still being delivered.
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	err := cli.RunNoErrOutput(cmd)
	signal.Stop(asked)
	if err == nil || len(asked) > 0 {
		return 0
	}
	line := explain(err, configFile(cmd))
	if format := cmd.Flags().Lookup("logging-format"); format != nil && format.Value.String() != "text" {
		// The reader of stderr is a log collector.
		klog.Background().Error(nil, "Cannot run the scheduler", "reason", line)
		klog.Flush()
	} else {
		fmt.Fprintf(os.Stderr, "%s: %s\n", program.Name(), line)
	}
	return 1
}

// configFile returns the value of --config.
func configFile(cmd *cobra.Command) string {
	return flagValue(cmd, "config")
}

// flagValue returns the value of one of upstream's flags, or "" if upstream no longer has it.
func flagValue(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}
