package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/live"
	page "zonewise.dev/cmd/zonewise/board"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/cluster"
	"zonewise.dev/demo/workload"
)

// Options are the options of the command line.
type Options struct {
	// Plan is the workload.
	Plan *workload.Plan
	// BinDir is the absolute path of the directory of the binaries.
	BinDir string
	// Port is the API server's, BoardPort that of the live page; 0 takes a free one.
	Port, BoardPort uint16
	// Report is the file that the closing page is written to; empty writes none.
	Report string
	// Timeout bounds everything from the running control plane to the board.
	Timeout time.Duration
	// Keep leaves the cluster up after the board until the context ends.
	Keep bool
	// JSON is the format of the board, in place of text.
	JSON bool
	// Quiet leaves out the progress.
	Quiet bool
	// Out gets the board, Progress everything else.
	Out, Progress io.Writer
}

var errTimeout = errors.New("timed out")

// demo is a running demo.
type demo struct {
	Options
	*progress
	cluster *cluster.Cluster
	live    *live.Live
	page    page.Following
	board   board
	// doing is the phase, state how far one is that does not wait for pods, and waiting what it waits for: strings that
	// the page and the progress show.
	doing, state, waiting atomic.Value
	// workers is how many batch workers have been created.
	workers int
	// certificates are what was said before the loss, by ZoneSurvival. lostAt is when the zone was lost.
	certificates map[string]*status.Survival
	lostAt       time.Time
	// mayWait is the service whose replicas may wait after an attempt: empty, or DefaultPolicyApp while the nodes of
	// the lost zone exist.
	mayWait string
	// rebalanced is the ZoneRebalance when its moves were over.
	rebalanced *v1alpha1.ZoneRebalance
}

// Run runs the demo. It returns ErrBroken if checks have failed.
func Run(ctx context.Context, opts Options) error {
	d := &demo{Options: opts, progress: newProgress(opts.Progress, opts.Quiet)}
	options := cluster.Options{
		BinDir: opts.BinDir, Port: int(opts.Port), Zones: workload.Zones, Progress: func(name string) { d.state.Store(name) },
		// No limit to CPU, one replay of each loss and one copy for moves, and short intervals, so that the demo does
		// not wait for long.
		Controller: []string{"--cpu-fraction=8", "--replays=1", "--rebalance-seeds=1", "--rebalance-ready-for=1s", "--settle-time=1s"},
	}
	if err := cluster.CheckBinaries(options); err != nil {
		return err
	}
	living := ctx // ends when a component does
	err := d.runPhase(ctx, "start the control plane", func(ctx context.Context) (err error) {
		d.cluster, living, err = cluster.Start(ctx, options)
		d.state.Store("etcd, kube-apiserver, controllers, kwok, zonewise-scheduler, zonewise-controller")
		return err
	}, d.stateText)
	if err != nil {
		return err
	}
	showing, stop := context.WithCancel(living)
	var running sync.WaitGroup
	err = d.serveBoard(showing, &running)
	if err == nil {
		err = d.runToBoard(living)
	}
	if opts.Keep && living.Err() == nil {
		d.keepCluster(living, err)
		// If a component ends by itself, the cluster is not kept, and the end is reported.
		if ctx.Err() == nil {
			err = errors.Join(err, context.Cause(living))
		}
	}
	stop()
	running.Wait()
	end := d.progress.begin("clean up", noStatus)
	stopErr := d.cluster.Stop()
	end("nothing is left", stopErr)
	return errors.Join(err, stopErr)
}

// serveBoard follows the cluster, and serves it as a page like that of "zonewise board", until the context ends.
func (d *demo) serveBoard(ctx context.Context, running *sync.WaitGroup) (err error) {
	d.live, err = live.Start(ctx, d.cluster.Config)
	if err != nil {
		return err
	}
	running.Go(d.live.Wait)
	if err := d.live.Sync(ctx); err != nil {
		return fmt.Errorf("read the cluster: %w", err)
	}
	d.page = page.Following{Cluster: d.live, Options: page.Options{Cluster: "demo", Command: "zonewise"}}
	server, err := page.Listen(ctx, int(d.BoardPort))
	if errors.Is(err, page.ErrPortTaken) {
		return fmt.Errorf("--board-port: %w: choose another, or 0 for a free one", err)
	}
	if err != nil {
		return fmt.Errorf("serve the board: %w", err)
	}
	running.Go(func() { _ = server.Run(ctx, pageWithPhase{d.page, &d.doing}) }) // a page that cannot be served is no reason to end the demo
	d.printLine("The cluster in a browser, live: %s\n", server.URL())
	return nil
}

// pageWithPhase is the cluster's page with the phase in its banner.
type pageWithPhase struct {
	page.Following
	doing *atomic.Value
}

// Page shows the cluster.
func (w pageWithPhase) Page() *page.Page {
	p := w.Following.Page()
	p.Banner = "The demo: " + w.doing.Load().(string)
	return p
}

// runToBoard runs everything from the running cluster to its board.
func (d *demo) runToBoard(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, fmt.Errorf("%w after %s (see --timeout)", errTimeout, d.Timeout))
	defer cancel()
	if err := d.runPhases(ctx); err != nil {
		if errors.Is(err, errTimeout) {
			err = fmt.Errorf("%w\nthe end of the scheduler's log:\n%s", err, d.cluster.SchedulerLog())
		}
		return err
	}
	if err := d.writeBoard(); err != nil {
		return err
	}
	return d.board.brokenError()
}

func noStatus() string { return "" }

// runPhase times do and shows its progress.
func (d *demo) runPhase(ctx context.Context, name string, do func(context.Context) error, status func() string) error {
	d.doing.Store(name)
	d.state.Store("")
	d.waiting.Store("")
	end := d.progress.begin(name, func() string { return withWaiting(status(), d.waiting.Load().(string)) })
	start := time.Now()
	if err := do(ctx); err != nil {
		if ctx.Err() != nil && !errors.Is(err, errTimeout) {
			err = context.Cause(ctx)
		}
		end("", err)
		return fmt.Errorf("%s: %w", name, err)
	}
	end(status(), nil)
	d.board.Phases = append(d.board.Phases, phase{name, time.Since(start).Seconds()})
	return nil
}

func (d *demo) stateText() string { return d.state.Load().(string) }

// withWaiting adds to how far a phase is what it waits for, if it does.
func withWaiting(state, waiting string) string {
	switch {
	case waiting == "":
		return state
	case state != "":
		state += "; "
	}
	return state + "waits for " + waiting
}

// keepCluster leaves the cluster up until the context ends. It prints errors first, since the user may want to look
// into them.
func (d *demo) keepCluster(ctx context.Context, err error) {
	d.doing.Store("the cluster stays up")
	if err != nil {
		fmt.Fprintf(d.Progress, "\n%v\n", err)
	}
	fmt.Fprintf(d.Progress, `
The cluster stays up until Ctrl-C here. From another terminal:
  export KUBECONFIG=%s
  %s get pods -A -o wide
The logs are in %s.
`, d.cluster.Kubeconfig(), filepath.Join(d.BinDir, "kubectl"), filepath.Dir(d.cluster.Log("")))
	<-ctx.Done()
}
