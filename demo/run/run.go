package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/config"
	"zonewise.dev/demo/board"
	"zonewise.dev/demo/cluster"
	"zonewise.dev/demo/workload"
	"zonewise.dev/manifests"
)

// profile is the scheduler's configuration, of those in the config package.
const profile = "zonewise.yaml"

// manifestPaths are what is applied of the manifests: the definitions, the
// scheduler's account and roles, and the overlay's change to them that goes
// with the profile, which takes the lease of kube-scheduler.
var manifestPaths = []string{"crds", "rbac", "overlays/replace-kube-scheduler/role.yaml"}

// startTimeout bounds the start of the control plane, which takes a few
// seconds on an idle machine.
const startTimeout = 2 * time.Minute

var errTimeout = errors.New("timed out")

// InvariantError says that something on the board must not be.
type InvariantError struct {
	// Broken are the failed checks, at least one.
	Broken []board.Check
}

// Error names the invariants.
func (e *InvariantError) Error() string {
	names := make([]string, 0, len(e.Broken))
	for _, c := range e.Broken {
		names = append(names, fmt.Sprintf("%q: %s", c.Name, strings.Join(c.Violations, "; ")))
	}
	return "broken invariant " + strings.Join(names, ", ")
}

// demo is a demo under way.
type demo struct {
	opts     Options
	plan     *workload.Plan
	progress *progress
	cluster  *cluster.Cluster
	seen     *observer
	window   *window
	phases   []board.Phase
}

// Run carries the demo out.
func Run(ctx context.Context, opts Options) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	binaries, err := cluster.FindBinaries(opts.BinDir, opts.Assets)
	if err != nil {
		return err
	}
	plan, err := workload.NewPlan(opts.workload())
	if err != nil {
		return workloadError(err)
	}
	d := &demo{opts: opts, plan: plan, progress: &progress{live: opts.Live, color: opts.ColorProgress, width: opts.Width}}
	if !opts.Quiet {
		d.progress.w = opts.Progress
	}

	whole, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timed, timeout := context.WithCancelCause(whole)
	defer timeout(nil)
	timer := time.AfterFunc(opts.Timeout, func() {
		timeout(fmt.Errorf("%w after %s (see --timeout)", errTimeout, opts.Timeout))
	})
	defer timer.Stop()

	if d.window, err = openWindow(ctx, opts.BoardPort); err != nil {
		return err
	}
	defer d.window.close()
	d.progress.say("The cluster in a browser, live: %s\n", d.window.server.URL())

	if err := d.start(timed, binaries); err != nil {
		return err
	}
	d.window.show(d.cluster.Config)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case err := <-d.cluster.Ended():
			cancel(err)
		case <-whole.Done():
		}
	})
	err = d.course(timed)
	if opts.Keep && whole.Err() == nil {
		d.window.enter("the cluster stays up")
		d.keep(whole, err)
		// A component that ends by itself ends the keeping, and is told.
		if failure := context.Cause(whole); ctx.Err() == nil && failure != nil {
			err = errors.Join(err, failure)
		}
	}
	cancel(nil)
	watching.Wait()
	d.window.close()
	end := d.progress.phase("clean up", nothing)
	stopErr := d.cluster.Stop()
	end("nothing is left", stopErr)
	return errors.Join(err, stopErr)
}

// course is everything between a cluster that stands and its board.
func (d *demo) course(ctx context.Context) error {
	b, err := d.play(ctx)
	if err != nil {
		var ended *cluster.ExitError
		if !errors.As(err, &ended) && errors.Is(err, errTimeout) {
			err = fmt.Errorf("%w\nthe end of the scheduler's log:\n%s", err, d.cluster.LogTail(cluster.Scheduler))
		}
		return err
	}
	if d.opts.Format == JSON {
		err = b.JSON(d.opts.Out)
	} else {
		d.progress.say("")
		err = b.Text(d.opts.Out, board.Style{Color: d.opts.ColorOut})
	}
	if err != nil {
		return fmt.Errorf("write the board: %w", err)
	}
	if d.opts.Report != "" {
		path, err := d.saveReport(ctx, b)
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		d.progress.say("\nThe report is in %s", path)
	}
	if broken := b.Broken(); len(broken) > 0 {
		return &InvariantError{broken}
	}
	return nil
}

// play runs the phases and computes the board.
func (d *demo) play(ctx context.Context) (*board.Board, error) {
	clients, err := kubernetes.NewForConfig(d.cluster.Config)
	if err != nil {
		return nil, err
	}
	if d.seen, err = observe(ctx, clients); err != nil {
		return nil, err
	}
	lost := d.plan.LostZone()
	err = d.steps(ctx, []step{
		{fmt.Sprintf("create %d nodes", len(d.plan.Nodes)), d.createNodes, d.nodeStatus, d.nodeOutcome},
		{"replay the workload", d.replay, d.placeStatus, d.placeOutcome},
		{"drain " + lost, func(ctx context.Context) error { return d.drain(ctx, lost) }, d.drainStatus, d.placeOutcome},
	})
	if err != nil {
		return nil, err
	}
	whileLost, err := d.look(ctx, clients, "let the books settle")
	if err != nil {
		return nil, err
	}
	err = d.steps(ctx, []step{
		{"bring " + lost + " back", func(ctx context.Context) error { return d.restore(ctx, lost) }, d.placeStatus, d.placeOutcome},
	})
	if err != nil {
		return nil, err
	}
	b, err := d.look(ctx, clients, "let the books settle again")
	if err != nil {
		return nil, err
	}
	b.WhileLost = whileLost.Checks
	return b, nil
}

// step is a phase that shows how far it is.
type step struct {
	name    string
	do      func(context.Context) error
	status  func() string
	outcome func() string
}

func (d *demo) steps(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := d.phase(ctx, s.name, s.do, s.status, s.outcome); err != nil {
			return err
		}
	}
	return nil
}

// look lets the books settle and computes the board of the moment.
func (d *demo) look(ctx context.Context, clients kubernetes.Interface, phase string) (*board.Board, error) {
	var metrics board.Metrics
	err := d.phase(ctx, phase, func(ctx context.Context) (err error) {
		metrics, err = d.balance(ctx)
		return err
	}, nothing, nothing)
	if err != nil {
		return nil, err
	}
	evidence, err := d.evidence(ctx, clients, metrics)
	if err != nil {
		return nil, err
	}
	return board.Build(evidence), nil
}

func nothing() string { return "" }

// phase times do and shows its progress.
func (d *demo) phase(ctx context.Context, name string, do func(context.Context) error, status, outcome func() string) error {
	end := d.progress.phase(name, status)
	if d.window != nil {
		d.window.enter(name)
	}
	start := time.Now()
	err := do(ctx)
	if err != nil && ctx.Err() != nil && !errors.Is(err, errTimeout) {
		err = context.Cause(ctx)
	}
	d.phases = append(d.phases, board.Phase{Name: name, Start: start, End: time.Now()})
	text := ""
	if err == nil {
		text = outcome()
	}
	end(text, err)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// start brings the control plane up.
func (d *demo) start(ctx context.Context, binaries cluster.Binaries) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), schedv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	base, err := config.FS.ReadFile(profile)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var mu sync.Mutex // guards step
	step := ""
	return d.phase(limited, "start the control plane", func(ctx context.Context) error {
		d.cluster, err = cluster.Start(ctx, cluster.Options{
			Binaries: binaries, Self: d.opts.Self, Port: d.opts.Port,
			Manifests: manifests.FS, ManifestPaths: manifestPaths,
			Profile: base, Scheme: scheme,
			Progress: func(name string) {
				mu.Lock()
				defer mu.Unlock()
				step = name
			},
		})
		return err
	}, func() string {
		mu.Lock()
		defer mu.Unlock()
		return step
	}, func() string { return "etcd, kube-apiserver, kube-controller-manager, kwok, zonewise-scheduler" })
}

// createNodes creates the nodes and waits until all take pods.
func (d *demo) createNodes(ctx context.Context) error {
	err := each(ctx, d.plan.Nodes, func(ctx context.Context, n workload.Node) error {
		return d.cluster.Client.Create(ctx, n.Object())
	})
	if err != nil {
		return err
	}
	return d.until(ctx, func() string {
		if ready := d.readyNodes(); ready < len(d.plan.Nodes) {
			return fmt.Sprintf("%d of %d nodes take pods", ready, len(d.plan.Nodes))
		}
		return ""
	})
}

// replay lets the workload arrive: the gang that cannot fit first, so that
// everything else has to get past it, the others spread over the services.
func (d *demo) replay(ctx context.Context) error {
	for _, name := range []string{workload.ServiceNamespace, workload.GangNamespace} {
		if err := d.namespace(ctx, name); err != nil {
			return err
		}
	}
	gangs := append([]workload.Gang(nil), d.plan.Gangs...)
	if last := len(gangs) - 1; last > 0 {
		gangs[0], gangs[last] = gangs[last], gangs[0]
	}
	stride := len(d.plan.Order)/len(gangs) + 1
	for i := 0; len(gangs) > 0 || i < len(d.plan.Order); i += stride {
		if len(gangs) > 0 {
			if err := d.createGang(ctx, gangs[0]); err != nil {
				return err
			}
			gangs = gangs[1:]
		}
		next := d.plan.Order[min(i, len(d.plan.Order)):min(i+stride, len(d.plan.Order))]
		err := each(ctx, next, func(ctx context.Context, service int) error {
			return d.cluster.Client.Create(ctx, d.plan.Deployment(d.plan.Services[service]))
		})
		if err != nil {
			return err
		}
	}
	return d.settle(ctx)
}

func (d *demo) createGang(ctx context.Context, g workload.Gang) error {
	if err := d.cluster.Client.Create(ctx, g.PodGroup()); err != nil {
		return err
	}
	return d.cluster.Client.Create(ctx, g.StatefulSet())
}

// namespace creates a namespace and waits for the account that its pods run
// under.
func (d *demo) namespace(ctx context.Context, name string) error {
	err := d.cluster.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil {
		return err
	}
	return d.account(ctx, name)
}

// account waits for the namespace's default account.
func (d *demo) account(ctx context.Context, namespace string) error {
	var fault error
	err := d.until(ctx, func() string {
		fault = d.cluster.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
		if apierrors.IsNotFound(fault) {
			return "the account default of the namespace " + namespace + " does not exist"
		}
		return "" // there, or a fault that waiting does not mend
	})
	return errors.Join(err, fault)
}

// drain takes a zone away.
func (d *demo) drain(ctx context.Context, zone string) error {
	if err := d.cordon(ctx, zone); err != nil {
		return err
	}
	return d.evacuate(ctx, zone)
}

// keep leaves the cluster up until the context ends. What went wrong is told
// before: it may be what somebody wants to look at.
func (d *demo) keep(ctx context.Context, err error) {
	if err != nil {
		fmt.Fprintf(d.opts.Progress, "\n%v\n", err)
	}
	fmt.Fprintf(d.opts.Progress, `
The cluster stays up until Ctrl-C here. From another terminal:
  export KUBECONFIG=%s
  %s get pods -A -o wide
The logs are in %s.
`, d.cluster.Kubeconfig, filepath.Join(d.opts.BinDir, "kubectl"), filepath.Join(d.cluster.Dir, "logs"))
	<-ctx.Done()
}
