package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/buy"
	"zonewise.dev/cmd/controller/deletioncosts"
	"zonewise.dev/cmd/controller/gangbudgets"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/cmd/controller/rebalance"
	"zonewise.dev/cmd/controller/survival"
	"zonewise.dev/internal/message"
	"zonewise.dev/internal/program"
	"zonewise.dev/sim"
)

const (
	// Name is the first argument with which the scheduler's program is this one.
	Name = "controller"
	// LeaseName is the lease of the replicas.
	LeaseName = "zonewise-controller"
)

// memoryMax is the file with the memory limit of the container.
const memoryMax = "/sys/fs/cgroup/memory.max"

// Main runs the program with the arguments after Name, until a signal ends it, and returns its exit status. The
// registry has plugins of a scheduler of the caller's own, which a configuration may then name; it may be nil.
func Main(args []string, registry frameworkruntime.Registry) int {
	sim.UseOneProcessor()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := NewCommand(registry)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", cmd.CommandPath(), message.OneLine(err))
		return 1
	}
	return 0
}

// flags are those of the program.
type flags struct {
	config, kubeconfig, address, leaseNamespace string
	cpuFraction                                 float64
	controllers                                 []string
	featureGates                                string
	callExtenders                               bool
	settle                                      time.Duration

	// registry has plugins of the caller's own, see Main.
	registry frameworkruntime.Registry

	parts []parts.Description
	on    []*bool // by part
}

const help = `Compute beside the scheduler what is asked of the cluster, and write it to the API server.
Each part is off unless its flag is given. It is not in the path of scheduling.

--survival answers ZoneSurvivals: it replays the losses that they ask for on a copy of the
cluster, with the scheduler's own configuration, and writes the answers into their status.
It keeps the ZoneReservations of those with hold. It evicts no pod.

--buy asks an autoscaler for the nodes of ZoneReservations and ZoneSurvivals with spec.buy, by
CapacityBuffers, and writes into their status what was asked and answered.

--rebalance plans for ZoneRebalances which pods to move so that they are spread again, and
writes the plan into their status. Where their mode is Evict it evicts these pods, through the
Eviction API, a few at a time, and stops when the cluster does not follow the plan.

--gang-budgets keeps a PodDisruptionBudget of minMember for each whole gang whose PodGroup has
the annotation zonewise.dev/disruption-budget: minMember.

--deletion-costs gives the pods of ZoneSpreadPolicies with scaleDownPolicy: KeepSpread the
annotation controller.kubernetes.io/pod-deletion-cost, by which ReplicaSets that are made smaller
delete pods of the fullest zone first. It deletes no pod.`

// NewCommand returns the program's command; see Main.
func NewCommand(registry frameworkruntime.Registry) *cobra.Command {
	f := flags{registry: registry, parts: []parts.Description{
		survival.Describe(), buy.Describe(), rebalance.Describe(), gangbudgets.Describe(), deletioncosts.Describe(),
	}}
	cmd := &cobra.Command{
		Use: Name, Short: "Compute beside the scheduler", Long: help, Args: cobra.NoArgs, SilenceUsage: true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested() // the flag is in each program that has the package
			return f.run(cmd.Context())
		},
		// Cobra takes the first word as the name; this has help and errors name the program before it.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: program.Name() + " " + Name},
	}
	cmd.SetFlagErrorFunc(program.WithFlags)
	set := cmd.Flags()
	set.StringVar(
		&f.config, "config", "",
		"the scheduler's KubeSchedulerConfiguration (default: the shipped one, config/zonewise.yaml)",
	)
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig (default: the pod's ServiceAccount)")
	set.StringVar(&f.address, "address", ":8080", "address of /metrics, /livez and /readyz, over HTTP; none when empty")
	set.StringVar(&f.leaseNamespace, "lease-namespace", metav1.NamespaceSystem, "namespace of the lease "+LeaseName)
	set.Float64Var(
		&f.cpuFraction, "cpu-fraction", 0.2, "how much of a core all parts together use at most, in the mean",
	)
	set.StringSliceVar(
		&f.controllers, "controllers", nil,
		"kinds of controllers that replace their pods, beside those of Kubernetes, such as RayCluster.ray.io",
	)
	set.StringVar(
		&f.featureGates, "feature-gates", "", "the scheduler's feature gates, as its own flag: Name=true,Other=false",
	)
	set.BoolVar(
		&f.callExtenders, "call-extenders", false,
		"ask the extenders of the configuration, which are programs elsewhere and may act on it",
	)
	set.DurationVar(&f.settle, "settle-time", 5*time.Second, "how long after a change the cluster is read")
	for _, p := range f.parts {
		f.on = append(f.on, set.Bool(p.Name, false, p.Help))
		if p.AddFlags != nil {
			p.AddFlags(set)
		}
	}
	var logging flag.FlagSet
	klog.InitFlags(&logging)
	set.AddGoFlag(logging.Lookup("v"))
	return cmd
}

// chosen are the parts that are on.
func (f *flags) chosen() []parts.Description {
	var out []parts.Description
	for i, p := range f.parts {
		if *f.on[i] {
			out = append(out, p)
		}
	}
	return out
}

// check returns an error that names the flag that is wrong.
func (f *flags) check() error {
	chosen := f.chosen()
	switch {
	case len(chosen) == 0:
		return errors.New("nothing is turned on: see --survival, --buy, --rebalance, --gang-budgets and --deletion-costs")
	case f.cpuFraction <= 0 || f.cpuFraction > 64:
		return fmt.Errorf("--cpu-fraction: must be above 0 and at most 64, got %g", f.cpuFraction)
	case f.settle < 0:
		return fmt.Errorf("--settle-time: must not be below 0, got %s", f.settle)
	}
	for _, p := range chosen {
		if p.Validate == nil {
			continue
		}
		if err := p.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// scheduler says how the scheduler runs on copies of the cluster.
func (f *flags) scheduler() (sim.Options, error) {
	options := sim.Options{CallExtenders: f.callExtenders, Controllers: f.controllers, Registry: f.registry}
	if err := sim.SetFeatureGates(f.featureGates); err != nil {
		return options, fmt.Errorf("--feature-gates: %w", err)
	}
	if f.config == "" {
		return options, nil
	}
	data, err := os.ReadFile(f.config)
	if err != nil {
		return options, fmt.Errorf("--config: %w", err)
	}
	options.Config, err = sim.ParseConfig(data)
	if err != nil {
		return options, fmt.Errorf("--config: %s: %w", f.config, err)
	}
	return options, nil
}

func (f *flags) run(ctx context.Context) error {
	if err := f.check(); err != nil {
		return err
	}
	scheduler, err := f.scheduler()
	if err != nil {
		return err
	}
	ctrllog.SetLogger(klog.Background())
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if clientcmd.IsEmptyConfig(err) {
		return errors.New("not in a pod: name a kubeconfig with --kubeconfig")
	}
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent = rest.DefaultKubernetesUserAgent() + " " + LeaseName
	c, err := snapshot.NewClient(config)
	if err != nil {
		return err
	}
	m, err := f.newManager(config, parts.Shared{
		Client: c, Sim: scheduler, CPUFraction: f.cpuFraction, MemoryLimit: parts.LimitMemory(memoryMax),
	})
	if err != nil {
		return err
	}
	return m.Start(ctx)
}
