package board

import (
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
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

// Following is the source of the pages of a cluster.
type Following struct {
	Cluster
	Options Options
}

// Page shows the cluster as it is known now.
func (f Following) Page() *Page {
	p := Build(census.Take(f.Snapshot()), f.Options)
	for _, trouble := range f.Troubles() {
		p.addNote(trouble)
	}
	return p
}
