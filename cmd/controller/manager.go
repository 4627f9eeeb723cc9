package controller

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"zonewise.dev/cluster/live"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/sim/kinds"
)

// newManager returns a manager that runs the parts while it leads.
func (f *flags) newManager(server *rest.Config, shared parts.Shared) (manager.Manager, error) {
	l := &leader{flags: f, config: server, working: make(chan struct{}, 1)}
	shared.Read = func() *snapshot.Snapshot { return l.cluster.Load().Snapshot() }
	prefixes := []string{"go_", "process_", "kubernetes_build_info", "zonewise_build_info"}
	for _, p := range f.chosen() {
		if p.MetricPrefix != "" {
			prefixes = append(prefixes, p.MetricPrefix)
		}
	}
	serveOnly(prefixes)
	address := f.address
	if address == "" {
		address = "0"
	}
	if _, err := net.ResolveTCPAddr("tcp", f.address); err != nil {
		return nil, fmt.Errorf("--address: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	const renewDeadline = 10 * time.Second // the manager's default
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, f.leaseNamespace, LeaseName,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}, server, renewDeadline)
	if err != nil {
		return nil, err
	}
	m, err := manager.New(server, manager.Options{
		Scheme: kinds.Scheme,
		Metrics: metricsserver.Options{BindAddress: address, ExtraHandlers: map[string]http.Handler{
			"/livez": healthz.CheckHandler{Checker: healthz.Ping}, "/readyz": http.HandlerFunc(l.readyz),
		}},
		HealthProbeBindAddress: "0",
		// The manager's own lock would write events of the lease, for which the role has no permission.
		LeaderElection: true, LeaderElectionID: LeaseName, LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, err
	}
	for _, p := range f.chosen() {
		if err := l.addPart(m, p, shared); err != nil {
			return nil, err
		}
	}
	return m, m.Add(l)
}

// queue is that of a part's controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// leader follows the cluster while this replica leads, and has the parts look when it has changed.
type leader struct {
	*flags
	config  *rest.Config
	cluster atomic.Pointer[live.Live] // nil while this replica stands by
	// working has what the part sent that reconciles; the next one is that which has waited longest.
	working chan struct{}

	mu     sync.Mutex // guards what follows
	queues []queue
	known  bool // the cluster is known, and the parts look at it
}

// runner runs something while this replica leads: a manager does.
type runner interface {
	Add(runnable manager.Runnable) error
}

// addPart adds the controller of a part.
func (l *leader) addPart(to runner, p parts.Description, shared parts.Shared) error {
	var own queue // from the start of the controller on
	shared.Wake = func(request reconcile.Request) { own.Add(request) }
	part := p.New(shared)
	if runnable, ok := part.(manager.Runnable); ok {
		if err := to.Add(runnable); err != nil {
			return err
		}
	}
	c, err := controller.NewUnmanaged(p.Name, controller.Options{
		Reconciler: reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			l.working <- struct{}{}
			defer func() { <-l.working }()
			return part.Reconcile(ctx, request)
		}),
		Logger:             klog.Background(), // without one, what the parts log goes nowhere
		RecoverPanic:       ptr.To(false),     // what a part knows after a panic may be wrong
		SkipNameValidation: ptr.To(true),      // a process may have several managers in tests
	})
	if err != nil {
		return err
	}
	if err := c.Watch(source.Func(func(_ context.Context, q queue) error {
		own = q
		l.addQueue(q)
		return nil
	})); err != nil {
		return err
	}
	return to.Add(c)
}

// addQueue adds a queue to those that changes go to. The first look is at once.
func (l *leader) addQueue(q queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queues = append(l.queues, q)
	if l.known {
		q.Add(parts.Look)
	}
}

// Start implements manager.Runnable. An error says that the cluster cannot be read.
func (l *leader) Start(ctx context.Context) error {
	cluster, err := live.Start(ctx, l.config)
	if err != nil {
		return err
	}
	l.cluster.Store(cluster)
	if err := cluster.Sync(ctx); err != nil {
		return err
	}
	l.lookAfter(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-cluster.Changed():
			l.lookAfter(l.settle) // at what changes meanwhile, too
		}
	}
}

// lookAfter has all parts look at the cluster, which is known, within a time.
func (l *leader) lookAfter(wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = true
	for _, q := range l.queues {
		q.AddAfter(parts.Look, wait)
	}
}

// readyz fails with a line for each thing that is not known of the cluster.
func (l *leader) readyz(w http.ResponseWriter, _ *http.Request) {
	cluster := l.cluster.Load()
	if cluster == nil {
		_, _ = w.Write([]byte("ok: stands by\n"))
		return
	}
	if lacks := cluster.Lacks(); len(lacks) > 0 {
		http.Error(w, strings.Join(lacks, "\n"), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// serveOnly has the manager serve the metrics of Kubernetes' registry with these prefixes, and those of controllers and
// their queues. Those of the scheduler and of its plugins are not about the cluster here, but about copies of it. What
// client-go measures is in the registry of the one that was first to ask for it.
func serveOnly(prefixes []string) {
	own, client := ctrlmetrics.Registry, []string{"rest_client_", "leader_election_"}
	ctrlmetrics.Registry = registry{own, prometheus.Gatherers{
		withPrefix(legacyregistry.DefaultGatherer, append(prefixes, client...)),
		withPrefix(own, append([]string{"controller_runtime_", "workqueue_"}, client...)),
	}}
}

// registry is what the manager serves.
type registry struct {
	prometheus.Registerer
	prometheus.Gatherer
}

// withPrefix leaves out of what is gathered what has none of some prefixes.
func withPrefix(from prometheus.Gatherer, prefixes []string) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := from.Gather()
		var out []*dto.MetricFamily
		for _, family := range all {
			if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(family.GetName(), prefix) }) {
				out = append(out, family)
			}
		}
		return out, err
	})
}
