package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/internal/message"
	"zonewise.dev/internal/program"
	"zonewise.dev/sim"
)

// clusterFlags are the flags of the commands that look at a cluster.
type clusterFlags struct {
	// registry has plugins of the caller's own, see Main.
	registry frameworkruntime.Registry

	kubeconfig, context, namespace string
	snapshotFile                   string
	configFile, featureGates       string
	callExtenders                  bool
	seed                           int64
	output                         string
	timeout                        time.Duration
	quiet                          bool
}

// register adds the flags that the commands with a result in several formats have.
func (f *clusterFlags) register(cmd *cobra.Command) {
	f.registerSource(cmd)
	cmd.Flags().StringVarP(&f.output, "output", "o", show.Table, "table, json or yaml")
	complete(cmd, "output", show.Formats...)
}

// registerSource adds the flags that say what to look at.
func (f *clusterFlags) registerSource(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "path of the kubeconfig (default: $KUBECONFIG, then ~/.kube/config)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current one)")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace (default: that of the context)")
	flags.StringVar(&f.snapshotFile, "snapshot", "", "look at a file of \"zonewise snapshot\" instead of a live cluster")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "give up reading the cluster after this long")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	complete(cmd, "context", f.contexts()...)
}

// registerScheduler adds the flags of the commands that ask a scheduler.
func (f *clusterFlags) registerScheduler(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.configFile, "config", "", "the scheduler's KubeSchedulerConfiguration (default: the shipped one, config/zonewise.yaml)")
	flags.StringVar(&f.featureGates, "feature-gates", "", "the scheduler's feature gates, as its own flag: Name=true,Other=false")
	flags.BoolVar(&f.callExtenders, "call-extenders", false, "ask the extenders of the configuration, which are programs elsewhere and may act on it")
	flags.Int64Var(&f.seed, "seed", 0, "decide ties between nodes, and the order of controllers, by this number; 0 takes the first")
}

// schedulerOptions reads --config, and says how to run the scheduler on a copy of the cluster.
func (f *clusterFlags) schedulerOptions() (sim.Options, error) {
	options := sim.Options{Seed: f.seed, CallExtenders: f.callExtenders, Registry: f.registry}
	if f.featureGates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(f.featureGates); err != nil {
			return options, program.Usage(fmt.Errorf("--feature-gates: %w", err))
		}
	}
	if f.configFile == "" {
		return options, nil
	}
	data, err := os.ReadFile(f.configFile)
	if err != nil {
		return options, fmt.Errorf("--config: %w", err)
	}
	if options.Config, err = sim.ParseConfig(data); err != nil {
		return options, program.Usage(fmt.Errorf("--config: %s: %w", f.configFile, oneLine(err)))
	}
	return options, nil
}

// complete offers values of a flag for shell completion.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag is registered in the same function
	}
}

// contexts lists the contexts of the kubeconfig, none if it cannot be read.
func (f *clusterFlags) contexts() []string {
	config, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(config.Contexts))
}

func (f *clusterFlags) check() error {
	if !slices.Contains(show.Formats, f.output) {
		return program.Usage(fmt.Errorf("--output: must be table, json or yaml, got %q", f.output))
	}
	return f.checkSource()
}

func (f *clusterFlags) checkSource() error {
	if f.timeout <= 0 {
		return program.Usage(fmt.Errorf("--timeout: must be positive, got %s", f.timeout))
	}
	if f.snapshotFile != "" && (f.kubeconfig != "" || f.context != "") {
		return program.Usage(errors.New("--snapshot reads a file instead of a cluster: leave out --kubeconfig and --context"))
	}
	return nil
}

func (f *clusterFlags) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// scope returns the namespace to look at.
func (f *clusterFlags) scope() (string, error) {
	switch {
	case f.namespace != "":
		return f.namespace, nil
	case f.snapshotFile != "":
		return "default", nil
	}
	namespace, _, err := f.clientConfig().Namespace()
	return namespace, err
}

// restConfig says how to connect to the cluster.
func (f *clusterFlags) restConfig() (*rest.Config, error) {
	config, err := f.clientConfig().ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			return nil, errors.New("no kubeconfig found: set --kubeconfig or $KUBECONFIG, or read a file with --snapshot")
		}
		return nil, fmt.Errorf("kubeconfig: %w", oneLine(err))
	}
	return config, nil
}

// read takes a snapshot of the cluster, or reads the file.
func (f *clusterFlags) read(cmd *cobra.Command) (*snapshot.Snapshot, client.Client, error) {
	if f.snapshotFile != "" {
		s, err := snapshot.Load(f.snapshotFile)
		return s, nil, err
	}
	config, err := f.restConfig()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := f.limit(cmd.Context())
	defer cancel()
	c, err := snapshot.NewClient(config)
	if err != nil {
		return nil, nil, explained(ctx, err)
	}
	bar := f.progress(cmd)
	s, err := snapshot.Read(ctx, c, func(objects int) { bar.show("reading the cluster: %d objects", objects) })
	bar.clear()
	if err != nil {
		return nil, nil, explained(ctx, err)
	}
	if len(snapshot.List[*corev1.Node](s)) == 0 {
		return nil, nil, errors.New("the cluster has no nodes")
	}
	return s, c, nil
}

// limit applies --timeout to the reading of the cluster.
func (f *clusterFlags) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within %s: see --timeout", duration.HumanDuration(f.timeout)))
}

// census reads the cluster, and counts what is in it.
func (f *clusterFlags) census(cmd *cobra.Command) (*census.Census, client.Client, error) {
	s, c, err := f.read(cmd)
	if err != nil {
		return nil, nil, err
	}
	return census.Take(s), c, nil
}

// write writes a result in the requested format.
func (f *clusterFlags) write(cmd *cobra.Command, v any, text func(io.Writer, show.Style) error) error {
	if f.output != show.Table {
		return show.Object(cmd.OutOrStdout(), f.output, v)
	}
	return text(cmd.OutOrStdout(), show.StyleOf(cmd.OutOrStdout()))
}

// progressLine is rewritten in place on a terminal; elsewhere it shows nothing.
type progressLine struct {
	w     io.Writer
	last  time.Time
	shown bool
}

func (f *clusterFlags) progress(cmd *cobra.Command) *progressLine {
	if w := cmd.ErrOrStderr(); !f.quiet && show.IsTerminal(w) {
		return &progressLine{w: w}
	}
	return &progressLine{}
}

func (p *progressLine) show(format string, args ...any) {
	if p.w == nil || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last, p.shown = time.Now(), true
	show.Rewrite(p.w, fmt.Sprintf(format, args...))
}

func (p *progressLine) clear() {
	if p.shown {
		show.Rewrite(p.w, "")
	}
}

// explained translates errors of the API server or the network into plain words.
func explained(ctx context.Context, err error) error {
	var network *net.OpError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return context.Cause(ctx)
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; the ClusterRole zonewise-viewer in manifests/rbac/viewer has what is needed", oneLine(err))
	case apierrors.IsUnauthorized(err):
		return errors.New("the API server does not accept the credentials of the kubeconfig: they are invalid or have expired")
	case errors.As(err, &network):
		return fmt.Errorf("the cluster at %s does not answer: %w", network.Addr, network.Err)
	}
	return oneLine(err)
}

// oneLine keeps an error on one line, as all of ours are.
func oneLine(err error) error {
	if strings.Contains(err.Error(), "\n") {
		return errors.New(message.OneLine(err))
	}
	return err
}

// programName returns the name of the program: "kubectl zonewise" when it runs as a plugin of kubectl.
func programName() string {
	if name := filepath.Base(os.Args[0]); strings.HasPrefix(name, "kubectl-zonewise") {
		return "kubectl zonewise"
	}
	return "zonewise"
}
