package board

import (
	"context"

	"zonewise.dev/cmd/zonewise/live"
	"zonewise.dev/cmd/zonewise/world"
)

// Following is the source of a live cluster.
type Following struct {
	Live    *live.Live
	Options Options
}

// Page shows the cluster as it is known now. There is always one.
func (f *Following) Page(context.Context) (*Page, error) {
	s := f.Live.Snapshot()
	p := Build(world.New(s, s.TakenAt), f.Options)
	for _, trouble := range f.Live.Troubles() {
		p.note(trouble)
	}
	return p, nil
}

// Changed receives when the cluster has changed.
func (f *Following) Changed() <-chan struct{} { return f.Live.Changed() }

// Fixed is the source that always has the same page.
type Fixed struct{ Shown *Page }

// Page returns it.
func (f Fixed) Page(context.Context) (*Page, error) { return f.Shown, nil }

// Changed never receives.
func (f Fixed) Changed() <-chan struct{} { return nil }
