package app

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of requests, queues and leader election
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric kubernetes_build_info
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"zonewise.dev/plugins"
)

// NewSchedulerCommand returns the command of kube-scheduler with the plugins of pack, which belongs to the command
// alone, and what further options register. Upstream: app.NewSchedulerCommand.
func NewSchedulerCommand(pack *plugins.Pack, registry ...app.Option) *cobra.Command {
	for name, factory := range pack.Factories() {
		registry = append(registry, app.WithPlugin(name, factory))
	}
	opts := options.NewOptions()
	cmd := &cobra.Command{
		Use:  "kube-scheduler",
		Long: app.NewSchedulerCommand().Long,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return opts.ComponentGlobalsRegistry.Set() // feature gates are set before RunE
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd, opts, pack, registry)
		},
		Args: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if arg != "" {
					return fmt.Errorf("%q does not take any arguments, got %q", cmd.CommandPath(), args)
				}
			}
			return nil
		},
	}
	sets := opts.Flags
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *sets, columns)
	if err := cmd.MarkFlagFilename("config", "yaml", "yml", "json"); err != nil {
		panic(err) // upstream has no flag --config any more
	}
	return cmd
}

// run runs the scheduler until it is asked to end or has lost its lease. Upstream: runCommand.
func run(cmd *cobra.Command, opts *options.Options, pack *plugins.Pack, registry []app.Option) error {
	verflag.PrintAndExitIfRequested()
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		os.Exit(1)
	}
	cliflag.PrintFlags(cmd.Flags())
	if err := nameInformers(opts); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signalled := notifyStop()
	go func() {
		<-signalled
		cancel()
	}()
	completed, scheduler, err := app.Setup(ctx, opts, registry...)
	if err != nil {
		return err
	}
	pack.ObserveElection(completed.LeaderElection)
	exportGates(gates.(featuregate.MutableFeatureGate)) //nolint:forcetypeassert // upstream's registry has no others.
	opts.ComponentGlobalsRegistry.AddMetrics()
	return app.Run(ctx, completed, scheduler)
}
