package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	page "zonewise.dev/cmd/zonewise/board"
	"zonewise.dev/cmd/zonewise/live"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/world"
	"zonewise.dev/demo/board"
)

// syncLimit is how long the first page may take.
const syncLimit = 30 * time.Second

// clusterName is what pages call the cluster.
const clusterName = "demo"

// window is the demo's cluster as a web page, see package cmd/zonewise/board. The cluster is followed from the first look
// on: a demo that nobody looks at does without the watches.
type window struct {
	server  *page.Server
	changed chan struct{}
	running sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // ends what the first look starts

	mu     sync.Mutex // guards what follows
	config *rest.Config
	live   *live.Live
	phase  string
}

// openWindow serves the page until close. Port 0 takes a free one.
func openWindow(ctx context.Context, port int) (*window, error) {
	w := &window{changed: make(chan struct{}, 1)}
	// It closes after the demo's own context has ended, and before the cluster goes.
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if w.server, err = page.Listen(ctx, "127.0.0.1", port, w); err != nil {
		w.stop()
		if errors.Is(err, page.ErrPortTaken) {
			return nil, fmt.Errorf("--board-port: %w: choose another, or 0 for a free one", err)
		}
		return nil, fmt.Errorf("serve the board: %w", err)
	}
	w.running.Go(func() { _ = w.server.Run(w.ctx) }) // a page that cannot be served is no reason to end the demo
	return w, nil
}

// close ends the page and everything that follows the cluster.
func (w *window) close() {
	w.stop()
	w.running.Wait()
	w.mu.Lock()
	followed := w.live
	w.mu.Unlock()
	if followed != nil {
		followed.Wait()
	}
}

// show says which cluster there is to see.
func (w *window) show(config *rest.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.config = config
	w.tell()
}

// enter says what the demo does.
func (w *window) enter(phase string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = phase
	w.tell()
}

func (w *window) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Changed receives when there may be another page.
func (w *window) Changed() <-chan struct{} { return w.changed }

// Page shows the cluster, or that there is none yet.
func (w *window) Page(context.Context) (*page.Page, error) {
	followed, phase, err := w.follow()
	if err != nil {
		return nil, err
	}
	opts := page.Options{Cluster: clusterName}
	var p *page.Page
	if followed != nil {
		// The first page is not to show half of the cluster. Later there is nothing to wait for.
		limited, cancel := context.WithTimeout(w.ctx, syncLimit)
		defer cancel()
		if err := followed.Sync(limited); err != nil {
			return nil, fmt.Errorf("read the cluster: %w", err)
		}
	}
	if followed == nil {
		s := snapshot.New(time.Now().UTC())
		p = page.Build(world.New(s, s.TakenAt), opts)
	} else {
		source := &page.Following{Live: followed, Options: opts}
		if p, err = source.Page(w.ctx); err != nil {
			return nil, err
		}
	}
	if phase != "" {
		p.Banner = "The demo: " + phase
	}
	return p, nil
}

// follow returns the followed cluster, nil before there is one, and the phase.
func (w *window) follow() (*live.Live, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live == nil && w.config != nil {
		started, err := live.Start(w.ctx, w.config)
		if err != nil {
			return nil, "", err
		}
		w.live = started
		w.running.Go(func() {
			for {
				select {
				case <-started.Changed():
					w.tell()
				case <-w.ctx.Done():
					return
				}
			}
		})
	}
	return w.live, w.phase, nil
}

// saveReport writes the page of the cluster as it is, with the board's verdicts, and returns where it is.
func (d *demo) saveReport(ctx context.Context, b *board.Board) (string, error) {
	path, err := filepath.Abs(d.opts.Report)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	c, err := snapshot.NewClient(d.cluster.Config)
	if err != nil {
		return "", err
	}
	s, err := snapshot.Read(ctx, c, nil)
	if err != nil {
		return "", fmt.Errorf("read the cluster: %w", err)
	}
	p := page.Build(world.New(s, s.TakenAt), page.Options{Cluster: clusterName})
	p.Report = report(b)
	return path, p.WriteFile(path)
}

// report is what the closing board says, for the page.
func report(b *board.Board) *page.Report {
	r := &page.Report{Title: "The demo's closing board"}
	add := func(checks []board.Check, when string) {
		for _, c := range checks {
			r.Checks = append(r.Checks, page.Check{Name: c.Name + when, Scope: c.Scope, Violations: c.Violations})
		}
	}
	add(b.Checks, "")
	add(b.WhileLost, ", while the zone was lost")
	for _, t := range b.Phases {
		value := fmt.Sprintf("%.1f s", t.Duration.Seconds())
		if t.Bound > 0 {
			value += fmt.Sprintf(", %d pods bound, %.0f a second", t.Bound, t.PerSecond)
		}
		r.Facts = append(r.Facts, page.Fact{Name: t.Name, Value: value})
	}
	r.Facts = append(r.Facts, page.Fact{
		Name:  "from created to bound",
		Value: fmt.Sprintf("median %.1f s, 99%% within %.1f s", b.Throughput.Median.Seconds(), b.Throughput.P99.Seconds()),
	}, page.Fact{Name: "Kubernetes", Value: b.Kubernetes})
	return r
}
