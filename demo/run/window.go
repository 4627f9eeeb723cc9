package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	page "zonewise.dev/cmd/zonewise/board"
	"zonewise.dev/cmd/zonewise/live"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/sim"
)

// syncLimit is how long the first page may take.
const syncLimit = 30 * time.Second

// clusterName is the cluster's name on pages.
const clusterName = "demo"

// window shows the demo's cluster as a web page, like "zonewise board". It watches the cluster only once the page has been
// opened.
type window struct {
	server  *page.Server
	running sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // ends the watches

	mu        sync.Mutex // guards what follows
	config    *rest.Config
	live      *live.Live
	following *page.Following
	phase     string
}

// openWindow serves the page until close. Port 0 takes a free one.
func openWindow(ctx context.Context, port int) (*window, error) {
	w := &window{}
	// It closes after the demo's own context has ended, and before the cluster is stopped.
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

// close ends the page and its watches.
func (w *window) close() {
	w.stop()
	w.running.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live != nil {
		w.live.Wait()
	}
}

// show sets the cluster to show.
func (w *window) show(config *rest.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.config = config
}

// enter sets the text about what the demo does.
func (w *window) enter(phase string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = phase
}

// Changed receives when the page may have changed.
func (w *window) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.following == nil {
		return nil
	}
	return w.following.Changed()
}

// Page shows the cluster, once it is running.
func (w *window) Page(context.Context) (*page.Page, error) {
	following, err := w.follow()
	if err != nil {
		return nil, err
	}
	p, err := following.Page(w.ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Banner = "The demo: " + w.phase
	return p, nil
}

// follow returns the followed cluster.
func (w *window) follow() (*page.Following, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.config == nil {
		return nil, errors.New("the demo's control plane is being started: try again in a few seconds")
	}
	if w.following == nil {
		var err error
		if w.live == nil {
			if w.live, err = live.Start(w.ctx, w.config); err != nil {
				return nil, err
			}
		}
		// Wait, so that the first page does not show half of the cluster.
		limited, cancel := context.WithTimeout(w.ctx, syncLimit)
		defer cancel()
		if err := w.live.Sync(limited); err != nil {
			return nil, fmt.Errorf("read the cluster: %w", err)
		}
		w.following = page.Follow(w.live, page.Options{Cluster: clusterName, Command: "zonewise"}, func(s *snapshot.Snapshot) (*sim.Sim, error) {
			return sim.New(w.ctx, s.Objects(), sim.Options{Now: s.TakenAt, NotInstalled: s.NotInstalled()})
		})
	}
	return w.following, nil
}
