package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/demo/check"
	"zonewise.dev/demo/cluster"
	"zonewise.dev/demo/workload"
)

// startTimeout bounds the start of the control plane, which takes a few seconds on an idle machine.
const startTimeout = 2 * time.Minute

var errTimeout = errors.New("timed out")

// BrokenError says that checks on the board have failed.
type BrokenError struct {
	// Broken are the failed checks, at least one, with the moment in their names.
	Broken []check.Check
}

// Error names the checks.
func (e *BrokenError) Error() string {
	names := make([]string, 0, len(e.Broken))
	for _, c := range e.Broken {
		names = append(names, fmt.Sprintf("%q: %s", c.Name, strings.Join(c.Violations, "; ")))
	}
	return "broken: " + strings.Join(names, ", ")
}

// demo is a running demo.
type demo struct {
	opts     Options
	plan     *workload.Plan
	progress *progress
	cluster  *cluster.Cluster
	seen     *watch
	window   *window
	board    board
	// deployments is how many have been created.
	deployments int
	// zones are those of the nodes, by name.
	zones map[string]string
	// waitsFor says what the checks wait for.
	waitsFor atomic.Value
	// lostAt is when the zone was lost.
	lostAt time.Time
}

// Run plays the demo.
func Run(ctx context.Context, opts Options) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), schedv1alpha1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	var starting atomic.Value
	starting.Store("")
	of := cluster.Options{
		BinDir: opts.BinDir, Assets: opts.Assets, Self: opts.Self, Port: opts.Port, Zones: Zones, Scheme: scheme,
		Progress: func(name string) { starting.Store(name) },
	}
	if err := cluster.CheckBinaries(of); err != nil {
		return err
	}
	plan, err := workload.NewPlan(opts.workload())
	if err != nil {
		return workloadError(err)
	}
	d := &demo{opts: opts, plan: plan, zones: zoneNames(plan.Nodes), progress: &progress{live: opts.Live, color: opts.ColorProgress, width: opts.Width}}
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

	limited, started := context.WithTimeout(timed, startTimeout)
	defer started()
	err = d.phase(limited, "start the control plane", func(ctx context.Context) (err error) {
		d.cluster, err = cluster.Start(ctx, of)
		return err
	}, func() string { return starting.Load().(string) }, func() string {
		return "etcd, kube-apiserver, kube-controller-manager, kwok, zonewise-scheduler"
	})
	if err != nil {
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
	err = d.course(timed, scheme)
	if opts.Keep && whole.Err() == nil {
		d.window.enter("the cluster stays up")
		d.keep(whole, err)
		// If a component ends by itself, the cluster is not kept, and the end is reported.
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

// course plays everything from the running cluster to its board.
func (d *demo) course(ctx context.Context, scheme *runtime.Scheme) error {
	var err error
	if d.seen, err = newWatch(ctx, d.cluster.Config, scheme); err == nil {
		err = d.story(ctx)
	}
	if err != nil {
		if ended := (*cluster.ExitError)(nil); !errors.As(err, &ended) && errors.Is(err, errTimeout) {
			err = fmt.Errorf("%w\nthe end of the scheduler's log:\n%s", err, d.cluster.LogTail(cluster.Scheduler))
		}
		return err
	}
	if err := d.close(ctx); err != nil {
		return err
	}
	if broken := d.board.broken(); len(broken) > 0 {
		return &BrokenError{broken}
	}
	return nil
}

func nothing() string { return "" }

// phase times do and shows its progress.
func (d *demo) phase(ctx context.Context, name string, do func(context.Context) error, status, outcome func() string) error {
	end := d.progress.phase(name, status)
	d.window.enter(name)
	start := time.Now()
	err := do(ctx)
	if err != nil && ctx.Err() != nil && !errors.Is(err, errTimeout) {
		err = context.Cause(ctx)
	}
	text := ""
	if err == nil {
		text = outcome()
	}
	end(text, err)
	p := phase{Name: name, Seconds: time.Since(start).Seconds()}
	if d.seen != nil {
		p.Bound = len(d.seen.livesSince(start, bound))
	}
	d.board.Phases = append(d.board.Phases, p)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// keep leaves the cluster up until the context ends. It prints errors first, since the user may want to look into them.
func (d *demo) keep(ctx context.Context, err error) {
	if err != nil {
		fmt.Fprintf(d.opts.Progress, "\n%v\n", err)
	}
	fmt.Fprintf(d.opts.Progress, `
The cluster stays up until Ctrl-C here. From another terminal:
  export KUBECONFIG=%s
  %s get pods -A -o wide
The logs are in %s.
`, d.cluster.Kubeconfig, filepath.Join(d.opts.BinDir, "kubectl"), filepath.Dir(d.cluster.Log("")))
	<-ctx.Done()
}
