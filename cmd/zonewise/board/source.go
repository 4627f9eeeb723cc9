package board

import (
	"context"
	"sync"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
)

// Cluster is a cluster as it is known, see live.Live.
type Cluster interface {
	Snapshot() *snapshot.Snapshot
	Changed() <-chan struct{}
	Troubles() []string
}

// Still is a cluster that does not change, as in a file.
type Still struct{ At *snapshot.Snapshot }

// Snapshot implements Cluster.
func (s Still) Snapshot() *snapshot.Snapshot { return s.At }

// Changed implements Cluster.
func (Still) Changed() <-chan struct{} { return nil }

// Troubles implements Cluster.
func (Still) Troubles() []string { return nil }

// Following is the source of the pages of a cluster. Make one with Follow.
type Following struct {
	Cluster
	options Options
	open    func(*snapshot.Snapshot) (*sim.Sim, error)

	mu   sync.Mutex // guards copy, which one page at a time uses
	copy *sim.Sim
}

// Follow returns the source of the pages of a cluster. open copies the cluster for its scheduler, once.
func Follow(c Cluster, options Options, open func(*snapshot.Snapshot) (*sim.Sim, error)) *Following {
	return &Following{Cluster: c, options: options, open: open}
}

// Page shows the cluster as it is known now.
func (f *Following) Page(ctx context.Context) (*Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.Snapshot()
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
	for _, trouble := range f.Troubles() {
		p.note(trouble)
	}
	return p, nil
}
