package survival

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"zonewise.dev/cluster/live"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
)

const (
	// Name is the first argument with which the scheduler's program is this one.
	Name = "survival"
	// LeaseName is the lease of the replicas.
	LeaseName = "zonewise-survival"
)

// Main runs the program with the arguments after Name, until a signal ends it, and returns its exit status.
func Main(args []string) int {
	sim.UseOneProcessor()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := NewCommand()
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", cmd.Name(), strings.Join(strings.Fields(err.Error()), " "))
		return 1
	}
	return 0
}

// flags are those of the program.
type flags struct {
	config, kubeconfig, address, leaseNamespace string
	cpuFraction                                 float64
	replays                                     int
	controllers                                 []string
	featureGates                                string
	callExtenders                               bool
	settle, refresh                             time.Duration
}

const help = `Answer ZoneSurvivals: replay the losses that they ask for on a copy of the cluster,
with the scheduler's own configuration, and write the answers into their status.
Keep the ZoneReservations of those with hold.

It evicts no pod, and is not in the path of scheduling.`

// NewCommand returns the program's command.
func NewCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "zonewise-survival", Short: "Answer ZoneSurvivals", Long: help, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	set := cmd.Flags()
	set.StringVar(&f.config, "config", "", "the scheduler's KubeSchedulerConfiguration (default: the shipped one, config/zonewise.yaml)")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig (default: the pod's ServiceAccount)")
	set.StringVar(&f.address, "address", ":8080", "address of /metrics, /livez and /readyz, over HTTP; none when empty")
	set.StringVar(&f.leaseNamespace, "lease-namespace", metav1.NamespaceSystem, "namespace of the lease "+LeaseName)
	set.Float64Var(&f.cpuFraction, "cpu-fraction", 0.2, "how much of a core to use at most, in the mean between two rounds")
	set.IntVar(&f.replays, "replays", 0, "how many times each loss is replayed, each time in another order; 0 is 3, or fewer of a loss of more than 20,000 pods, and in a certificate up to 12 of one of fewer than 800")
	set.StringSliceVar(&f.controllers, "controllers", nil, "kinds of controllers that replace their pods, beside those of Kubernetes, such as RayCluster.ray.io")
	set.StringVar(&f.featureGates, "feature-gates", "", "the scheduler's feature gates, as its own flag: Name=true,Other=false")
	set.BoolVar(&f.callExtenders, "call-extenders", false, "ask the extenders of the configuration, which are programs elsewhere and may act on it")
	set.DurationVar(&f.settle, "settle-time", 5*time.Second, "how long after a change the cluster is read")
	set.DurationVar(&f.refresh, "refresh-interval", 10*time.Minute, "the age at which an answer is computed again although nothing has changed")
	var logging flag.FlagSet
	klog.InitFlags(&logging)
	set.AddGoFlag(logging.Lookup("v"))
	return cmd
}

// check returns an error that names the flag that is wrong.
func (f *flags) check() error {
	switch {
	case f.cpuFraction <= 0 || f.cpuFraction > 64:
		return fmt.Errorf("--cpu-fraction: must be above 0 and at most 64, got %g", f.cpuFraction)
	case f.replays < 0 || f.replays > 100:
		return fmt.Errorf("--replays: must be from 0 to 100, got %d", f.replays)
	case f.settle < 0:
		return fmt.Errorf("--settle-time: must not be below 0, got %s", f.settle)
	case f.refresh <= 0:
		return fmt.Errorf("--refresh-interval: must be above 0, got %s", f.refresh)
	}
	return nil
}

func (f *flags) run(ctx context.Context) error {
	if err := f.check(); err != nil {
		return err
	}
	options := Options{CPUFraction: f.cpuFraction, SettleTime: f.settle, RefreshInterval: f.refresh}
	options.Certify.Sim.CallExtenders = f.callExtenders
	if f.featureGates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(f.featureGates); err != nil {
			return fmt.Errorf("--feature-gates: %w", err)
		}
	}
	options.Certify.Replays, options.Certify.Sim.Controllers = f.replays, f.controllers
	if f.config != "" {
		data, err := os.ReadFile(f.config)
		if err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		if options.Certify.Sim.Config, err = sim.ParseConfig(data); err != nil {
			return fmt.Errorf("--config: %s: %w", f.config, err)
		}
	}
	ctrllog.SetLogger(klog.Background())
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent = rest.DefaultKubernetesUserAgent() + " " + LeaseName
	if f.address != "" {
		stop, err := serve(f.address)
		if err != nil {
			return fmt.Errorf("--address: %w", err)
		}
		defer stop()
	}
	return f.lead(ctx, config, func(ctx context.Context) error {
		l, err := live.Start(ctx, config)
		if err != nil {
			return err
		}
		c, err := snapshot.NewClient(config)
		if err != nil {
			return err
		}
		return New(l, c, options).Run(ctx)
	})
}

// lead waits for the lease, and works while it is held. The lease is given back at the end.
func (f *flags) lead(ctx context.Context, config *rest.Config, work func(ctx context.Context) error) error {
	leases, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	result := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: f.leaseNamespace, Name: LeaseName}, Client: leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true, Name: LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				result <- work(ctx)
				stop() // gives the lease back
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	select {
	case err := <-result:
		return err
	default:
		return errors.New("the lease is lost")
	}
}

// serve serves metrics and health, until stop is called.
func serve(address string) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }
	mux.HandleFunc("/livez", ok)
	mux.HandleFunc("/readyz", ok)
	mux.Handle("/metrics", metricsHandler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // until it is closed
	return func() { _ = server.Close() }, nil
}
