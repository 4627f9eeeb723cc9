package board

import (
	"context"
	"sync"

	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/live"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/sim"
)

// Following is the source of a live cluster. Make one with Follow.
type Following struct {
	live    *live.Live
	options Options
	open    func(*snapshot.Snapshot) (*sim.Sim, error)

	mu   sync.Mutex // guards sim, which one page at a time uses
	copy *sim.Sim
}

// Follow returns the source of a live cluster. open copies the cluster for its scheduler, once.
func Follow(l *live.Live, options Options, open func(*snapshot.Snapshot) (*sim.Sim, error)) *Following {
	return &Following{live: l, options: options, open: open}
}

// Page shows the cluster as it is known now. There is always one.
func (f *Following) Page(ctx context.Context) (*Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.live.Snapshot()
	if f.copy == nil {
		var err error
		if f.copy, err = f.open(s); err != nil {
			return nil, err
		}
	}
	if err := f.copy.Sync(s.TakenAt, s.Objects()); err != nil {
		return nil, err
	}
	p, err := Build(ctx, census.Take(s), f.copy, f.options)
	if err != nil {
		return nil, err
	}
	for _, trouble := range f.live.Troubles() {
		p.note(trouble)
	}
	return p, nil
}

// Changed receives when the cluster has changed.
func (f *Following) Changed() <-chan struct{} { return f.live.Changed() }

// Fixed is a source whose page never changes.
type Fixed struct{ Shown *Page }

// Page returns it.
func (f Fixed) Page(context.Context) (*Page, error) { return f.Shown, nil }

// Changed never receives.
func (f Fixed) Changed() <-chan struct{} { return nil }
