package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
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
	formats                  []string // that output may be
	verbosity                int
	quiet, all               bool
}

// register adds the flags of the commands that read the cluster once and have a result in several formats: those of
// show.Formats, and further ones.
func (f *clusterFlags) register(cmd *cobra.Command, further ...string) {
	f.registerSource(cmd)
	f.overrides.Timeout = requestTimeout
	cmd.Flags().StringVar(&f.overrides.Timeout, clientcmd.FlagTimeout, requestTimeout, "give up when the API server has not answered a request for this long; 0 never does")
	f.formats = append(slices.Clone(show.Formats), further...)
	cmd.Flags().StringVarP(&f.output, "output", "o", show.Table, strings.Join(f.formats, ", "))
	completeFlag(cmd, "output", f.formats...)
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
	flags.StringVar(&f.snapshotFile, "snapshot", "", "look at a file of \"zonewise snapshot\" instead of a live cluster; - reads standard input")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	flags.IntVarP(&f.verbosity, "v", "v", 0, "log to standard error with this verbosity; 6 has the requests, 8 what they return")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) { f.enableLogs(cmd.ErrOrStderr()) }
	completeFlag(cmd, clientcmd.FlagContext, f.contexts()...)
	f.completeObjects(cmd, clientcmd.FlagNamespace, "namespaces", nameOf)
}

// registerScheduler adds the flags of the commands that ask a scheduler.
func (f *clusterFlags) registerScheduler(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.configFile, "config", "", "the scheduler's KubeSchedulerConfiguration: a file, or configmap/NAMESPACE/NAME (default: the shipped one, of the second scheduler if it leads or pods name it)")
	flags.StringVar(&f.featureGates, "feature-gates", "", "the scheduler's feature gates, as its own flag: Name=true,Other=false")
	flags.BoolVar(&f.callExtenders, "call-extenders", false, "ask the extenders of the configuration, which are programs elsewhere and may act on it")
	flags.Int64Var(&f.seed, "seed", 0, "decide ties between nodes, and the order of controllers, by this number; 0 takes the first")
}

// schedulerOptions reads --config, and says how to run the scheduler on a copy of the cluster.
func (f *clusterFlags) schedulerOptions(ctx context.Context, stdin io.Reader) (sim.Options, error) {
	options := sim.Options{Seed: f.seed, CallExtenders: f.callExtenders, Registry: f.registry}
	if err := sim.SetFeatureGates(f.featureGates); err != nil {
		return options, program.Usage(fmt.Errorf("--feature-gates: %w", err))
	}
	if f.configFile == "" {
		return options, nil
	}
	data, err := f.readConfig(ctx, stdin)
	if err != nil {
		return options, fmt.Errorf("--config: %w", err)
	}
	options.Config, err = sim.ParseConfig(data)
	if err != nil {
		return options, program.Usage(fmt.Errorf("--config: %s: %w", f.configFile, oneLine(err)))
	}
	return options, nil
}

// readConfig reads the file of --config, or the ConfigMap "configmap/NAMESPACE/NAME" of the cluster.
func (f *clusterFlags) readConfig(ctx context.Context, stdin io.Reader) ([]byte, error) {
	reference, ok := strings.CutPrefix(f.configFile, "configmap/")
	if !ok {
		return readFile(f.configFile, stdin)
	}
	namespace, name, ok := strings.Cut(reference, "/")
	switch {
	case !ok || namespace == "" || name == "" || strings.Contains(name, "/"):
		return nil, program.Usage(fmt.Errorf("%q: want configmap/NAMESPACE/NAME, or a file", f.configFile))
	case f.snapshotFile != "":
		return nil, program.Usage(errors.New("a snapshot has no ConfigMaps: give the file"))
	}
	config, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	c, err := snapshot.NewClient(config)
	if err != nil {
		return nil, explainedError(ctx, err)
	}
	var found corev1.ConfigMap
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &found)
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w; who may read it can save it in a file", oneLine(err))
	case err != nil:
		return nil, explainedError(ctx, err)
	case len(found.Data) != 1:
		return nil, fmt.Errorf("%s has %d keys, want the configuration alone", f.configFile, len(found.Data))
	}
	for _, data := range found.Data {
		return []byte(data), nil
	}
	return nil, nil
}

// readFile reads a file; "-" is standard input.
func readFile(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

// findSchedulers has the copy simulate the schedulers that are there: the second one also if no pod names it yet.
func findSchedulers(options *sim.Options, s *snapshot.Snapshot) {
	if s.Leads(snapshot.SecondScheduler) {
		options.SchedulerNames = append(options.SchedulerNames, snapshot.SecondScheduler)
	}
}

// enableLogs has client-go log, if --v is set. Without it the libraries log nothing.
func (f *clusterFlags) enableLogs(w io.Writer) {
	if f.verbosity <= 0 {
		return
	}
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	_ = flags.Set("v", strconv.Itoa(f.verbosity)) // klog has the flag
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(f.verbosity), textlogger.Output(w))))
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
	if !slices.Contains(f.formats, f.output) {
		return program.Usage(fmt.Errorf("--output: must be one of %s, got %q", strings.Join(f.formats, ", "), f.output))
	}
	return f.checkSource()
}

func (f *clusterFlags) checkSource() error {
	var err error
	if f.snapshotFile == "-" && f.configFile == "-" {
		return program.Usage(errors.New("--snapshot and --config cannot both read standard input"))
	}
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

// kubeconfigError says what is wrong with the kubeconfig. Client-go has one error for a file that is not there, one
// that is empty, and one in which no context is chosen.
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

// namespace is that of --namespace, empty without it and for all of them.
func (f *clusterFlags) namespace() string {
	if f.all {
		return ""
	}
	return f.overrides.Context.Namespace
}

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
		s, err := f.loadSnapshot(cmd)
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

// loadSnapshot reads the file of --snapshot.
func (f *clusterFlags) loadSnapshot(cmd *cobra.Command) (*snapshot.Snapshot, error) {
	if f.snapshotFile != "-" {
		return snapshot.Load(f.snapshotFile)
	}
	s, err := snapshot.Decode(cmd.InOrStdin())
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return s, nil
}

// checkNamespace refuses a namespace that the cluster does not have: an empty answer would look like a healthy one.
func (f *clusterFlags) checkNamespace(s *snapshot.Snapshot) error {
	if f.namespace() == "" || !s.Has("namespaces") || slices.ContainsFunc(snapshot.List[*corev1.Namespace](s), func(n *corev1.Namespace) bool {
		return n.Name == f.namespace()
	}) {
		return nil
	}
	return fmt.Errorf("namespaces %q not found", f.namespace())
}

// registerAll adds kubectl's flag for all namespaces, which are the default of the commands that have it.
func (f *clusterFlags) registerAll(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "show all namespaces, whatever --namespace says; this is the default")
}

// readCensus reads the cluster, and counts what is in it.
func (f *clusterFlags) readCensus(cmd *cobra.Command) (*census.Census, client.Client, error) {
	s, c, err := f.readSnapshot(cmd)
	if err != nil {
		return nil, nil, err
	}
	return census.Take(s), c, nil
}

// writeOutput writes a result of a kind as JSON or YAML, or else by text.
func (f *clusterFlags) writeOutput(cmd *cobra.Command, kind string, v any, text func(io.Writer, show.Style) error) error {
	if f.output == show.JSON || f.output == show.YAML {
		return show.Object(cmd.OutOrStdout(), f.output, kind, v)
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

// invocation returns how to run this program on the same cluster: with the flags that say which it is and, if given,
// which scheduler it has. A token is left out.
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
