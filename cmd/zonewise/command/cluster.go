package command

import (
	"cmp"
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
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the auth providers of kubeconfigs that kubectl takes
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

	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	// live are the flags that a file has no use for.
	live *pflag.FlagSet

	snapshotFile             string
	configFile, featureGates string
	callExtenders            bool
	seed                     int64
	output                   string
	quiet                    bool
}

// register adds the flags of the commands that read the cluster once and have a result in several formats.
func (f *clusterFlags) register(cmd *cobra.Command) {
	f.registerSource(cmd)
	f.overrides.Timeout = requestTimeout
	cmd.Flags().StringVar(&f.overrides.Timeout, clientcmd.FlagTimeout, requestTimeout, "give up when the API server has not answered a request for this long; 0 never does")
	cmd.Flags().StringVarP(&f.output, "output", "o", show.Table, "table, json or yaml")
	completeFlag(cmd, "output", show.Formats...)
}

// requestTimeout is how long a request may take: those of kubectl may take for ever.
const requestTimeout = "1m"

// registerSource adds the flags that say what to look at: kubectl's for a cluster.
func (f *clusterFlags) registerSource(cmd *cobra.Command) {
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.AuthOverrideFlags.Username, names.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{} // API servers have no passwords
	namespace := names.ContextOverrideFlags.Namespace
	names.ContextOverrideFlags.Namespace, names.Timeout = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	f.live = pflag.NewFlagSet("", pflag.ContinueOnError)
	clientcmd.BindOverrideFlags(&f.overrides, f.live, names)
	f.live.StringVar(&f.kubeconfig, clientcmd.RecommendedConfigPathFlag, "", "path of the kubeconfig (default: $KUBECONFIG, then ~/.kube/config)")
	flags := cmd.Flags()
	flags.AddFlagSet(f.live)
	namespace.Description = "namespace (default: that of the context)"
	namespace.BindTransformingStringFlag(flags, &f.overrides.Context.Namespace, clientcmd.RemoveNamespacesPrefix)
	flags.StringVar(&f.snapshotFile, "snapshot", "", "look at a file of \"zonewise snapshot\" instead of a live cluster")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	completeFlag(cmd, clientcmd.FlagContext, f.contexts()...)
}

// registerScheduler adds the flags of the commands that ask a scheduler.
func (f *clusterFlags) registerScheduler(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.configFile, "config", "", "the scheduler's KubeSchedulerConfiguration (default: the shipped one, of the second scheduler if pods name it)")
	flags.StringVar(&f.featureGates, "feature-gates", "", "the scheduler's feature gates, as its own flag: Name=true,Other=false")
	flags.BoolVar(&f.callExtenders, "call-extenders", false, "ask the extenders of the configuration, which are programs elsewhere and may act on it")
	flags.Int64Var(&f.seed, "seed", 0, "decide ties between nodes, and the order of controllers, by this number; 0 takes the first")
}

// schedulerOptions reads --config, and says how to run the scheduler on a copy of the cluster.
func (f *clusterFlags) schedulerOptions() (sim.Options, error) {
	options := sim.Options{Seed: f.seed, CallExtenders: f.callExtenders, Registry: f.registry}
	if err := sim.SetFeatureGates(f.featureGates); err != nil {
		return options, program.Usage(fmt.Errorf("--feature-gates: %w", err))
	}
	if f.configFile == "" {
		return options, nil
	}
	data, err := os.ReadFile(f.configFile)
	if err != nil {
		return options, fmt.Errorf("--config: %w", err)
	}
	options.Config, err = sim.ParseConfig(data)
	if err != nil {
		return options, program.Usage(fmt.Errorf("--config: %s: %w", f.configFile, oneLine(err)))
	}
	return options, nil
}

// completeFlag offers values of a flag for shell completion.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
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

func (f *clusterFlags) checkFlags() error {
	if !slices.Contains(show.Formats, f.output) {
		return program.Usage(fmt.Errorf("--output: must be table, json or yaml, got %q", f.output))
	}
	return f.checkSource()
}

func (f *clusterFlags) checkSource() error {
	var err error
	f.live.VisitAll(func(flag *pflag.Flag) {
		if f.snapshotFile != "" && flag.Changed {
			err = program.Usage(fmt.Errorf("--snapshot reads a file instead of a cluster: leave out --%s", flag.Name))
		}
	})
	return err
}

func (f *clusterFlags) clientConfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.loadingRules(), &f.overrides)
}

func (f *clusterFlags) loadingRules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return rules
}

// kubeconfigError says what is wrong with the kubeconfig. Client-go has one error for a file that is not there, one that is empty, and one
// in which no context is chosen.
func (f *clusterFlags) kubeconfigError(err error) error {
	if !clientcmd.IsEmptyConfig(err) {
		return fmt.Errorf("kubeconfig: %w", oneLine(err))
	}
	files := f.loadingRules().GetLoadingPrecedence()
	names := strings.Join(files, ", ")
	if raw, err := f.clientConfig().RawConfig(); err == nil && len(raw.Contexts) > 0 {
		return fmt.Errorf("kubeconfig: no context is chosen in %s: set --context to one of \"kubectl config get-contexts\"", names)
	}
	if slices.ContainsFunc(files, func(file string) bool { _, err := os.Stat(file); return err == nil }) {
		return fmt.Errorf("kubeconfig: no cluster in %s", names)
	}
	return fmt.Errorf("no kubeconfig found at %s: set --kubeconfig or $KUBECONFIG, or read a file with --snapshot", names)
}

// namespace is that of --namespace, empty without it.
func (f *clusterFlags) namespace() string { return f.overrides.Context.Namespace }

// namespaceScope returns the namespace to look at.
func (f *clusterFlags) namespaceScope() (string, error) {
	if f.snapshotFile != "" {
		return cmp.Or(f.namespace(), "default"), nil
	}
	namespace, _, err := f.clientConfig().Namespace()
	if err != nil {
		return "", f.kubeconfigError(err)
	}
	return namespace, nil
}

// restConfig says how to connect to the cluster.
func (f *clusterFlags) restConfig() (*rest.Config, error) {
	config, err := f.clientConfig().ClientConfig()
	if err != nil {
		return nil, f.kubeconfigError(err)
	}
	return config, nil
}

// readSnapshot takes a snapshot of the cluster, or reads the file.
func (f *clusterFlags) readSnapshot(cmd *cobra.Command) (*snapshot.Snapshot, client.Client, error) {
	if f.snapshotFile != "" {
		s, err := snapshot.Load(f.snapshotFile)
		return s, nil, err
	}
	config, err := f.restConfig()
	if err != nil {
		return nil, nil, err
	}
	ctx := cmd.Context()
	c, err := snapshot.NewClient(config)
	if err != nil {
		return nil, nil, explainedError(ctx, err)
	}
	bar := f.progress(cmd)
	s, err := snapshot.Read(ctx, c, func(objects int) { bar.show("reading the cluster: %d objects", objects) })
	bar.clear()
	if err != nil {
		return nil, nil, explainedError(ctx, err)
	}
	if len(snapshot.List[*corev1.Node](s)) == 0 {
		return nil, nil, errors.New("the cluster has no nodes")
	}
	return s, c, nil
}

// readCensus reads the cluster, and counts what is in it.
func (f *clusterFlags) readCensus(cmd *cobra.Command) (*census.Census, client.Client, error) {
	s, c, err := f.readSnapshot(cmd)
	if err != nil {
		return nil, nil, err
	}
	return census.Take(s), c, nil
}

// writeOutput writes a result in the requested format.
func (f *clusterFlags) writeOutput(cmd *cobra.Command, v any, text func(io.Writer, show.Style) error) error {
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

// explainedError translates errors of the API server or the network into plain words.
func explainedError(ctx context.Context, err error) error {
	var network *net.OpError
	var late net.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; the ClusterRole zonewise-viewer in manifests/rbac/viewer has what is needed", oneLine(err))
	case apierrors.IsUnauthorized(err):
		return errors.New("the API server does not accept the credentials of the kubeconfig: they are invalid or have expired")
	case errors.As(err, &network):
		return fmt.Errorf("the cluster at %s does not answer: %w", network.Addr, network.Err)
	case errors.As(err, &late) && late.Timeout():
		return errors.New("the API server has not answered in time: see --request-timeout")
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

// invocation returns how to run this program on the same cluster: with the flags that say which it is and, if given, which scheduler it
// has. A token is left out.
func (f *clusterFlags) invocation() string {
	words := []string{programName()}
	add := func(flag, value string) { words = append(words, "--"+flag+"="+shellWord(value)) }
	f.live.VisitAll(func(flag *pflag.Flag) {
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if flag.Changed && flag.Name != clientcmd.FlagBearerToken {
				add(flag.Name, value)
			}
		}
	})
	for _, flag := range [][2]string{{"snapshot", f.snapshotFile}, {"config", f.configFile}, {"feature-gates", f.featureGates}} {
		if flag[1] != "" {
			add(flag[0], flag[1])
		}
	}
	return strings.Join(words, " ")
}

// shellWord quotes a word for a shell, if it has to be.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@,=+%", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// programName returns the name of the program: "kubectl zonewise" when it runs as a plugin of kubectl.
func programName() string {
	if name := filepath.Base(os.Args[0]); strings.HasPrefix(name, "kubectl-zonewise") {
		return "kubectl zonewise"
	}
	return "zonewise"
}
