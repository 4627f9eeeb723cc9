package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/message"
)

// patience is how long a kind may be without an answer of the API server: from then on snapshots say that it lacks.
const patience = 30 * time.Second

// Live is a cluster that is followed. Its methods may be called from several goroutines.
type Live struct {
	kinds    []*kind
	changed  chan struct{}
	running  sync.WaitGroup
	began    time.Time
	patience time.Duration

	mu sync.Mutex // guards answered
	// answered is closed and replaced whenever the API server has answered about a kind, or failed to.
	answered chan struct{}
}

// Start follows the cluster behind config until the context ends; see Wait.
func Start(ctx context.Context, config *rest.Config) (*Live, error) {
	c, err := snapshot.NewClient(config)
	if err != nil {
		return nil, err
	}
	l := newLive(patience)
	for _, described := range snapshot.Kinds() {
		l.kinds = append(l.kinds, l.newKind(c, described))
	}
	for _, k := range l.kinds {
		l.running.Go(func() { k.Run(ctx) })
	}
	return l, nil
}

func newLive(patience time.Duration) *Live {
	return &Live{changed: make(chan struct{}, 1), answered: make(chan struct{}), began: time.Now(), patience: patience}
}

// Wait returns when all watches have ended, after the end of the context.
func (l *Live) Wait() { l.running.Wait() }

// Sync waits until the cluster is known: nodes and pods, and each other kind that the API server answers about within
// half a minute. It returns the first error about nodes or pods from the API server or the network, or the end of the
// context.
func (l *Live) Sync(ctx context.Context) error {
	patient := time.NewTimer(time.Until(l.began.Add(l.patience)))
	defer patient.Stop()
	for impatient := false; ; {
		l.mu.Lock()
		next := l.answered
		l.mu.Unlock()
		waiting := false
		for _, k := range l.kinds {
			r := k.readState()
			if k.needed && !r.known && r.Err != nil {
				return fmt.Errorf("list %s: %w", k.resource, r.Err)
			}
			waiting = waiting || !r.known && (k.needed || !impatient)
		}
		if !waiting {
			return nil
		}
		select {
		case <-next:
		case <-patient.C:
			impatient = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Changed receives when Snapshot, Lacks or Troubles may have changed since the last time that it received.
func (l *Live) Changed() <-chan struct{} { return l.changed }

// Snapshot returns the cluster as it is known. The caller owns it, but not what the objects point to.
func (l *Live) Snapshot() *snapshot.Snapshot {
	now := time.Now().UTC()
	s := snapshot.New(now)
	for _, k := range l.kinds {
		r := k.readState()
		if lack, ok := l.missingKind(k, &r, now); ok {
			s.Missing = append(s.Missing, lack)
		}
		if !r.missing { // otherwise what was known of it may be gone
			s.Add(k.Objects()...)
		}
	}
	slices.SortFunc(s.Missing, func(a, b snapshot.Missing) int { return strings.Compare(a.Resource, b.Resource) })
	return s
}

// Lacks returns a line for each kind that is not known, no longer, or not yet. A kind that the cluster does not have
// lacks nothing.
func (l *Live) Lacks() []string {
	var out []string
	for _, k := range l.kinds {
		r := k.readState()
		lack, ok := l.missingKind(k, &r, time.Now())
		switch {
		case ok && lack.Reason != snapshot.NotInstalled:
			out = append(out, lack.Message())
		case !r.known:
			out = append(out, k.resource+" have not been read yet")
		}
	}
	return out
}

// Troubles returns the reasons why what has been read is not current, one line each, the most important first.
func (l *Live) Troubles() []string {
	var out, listed []string
	var first *readingState
	var firstResource string
	for _, k := range l.kinds {
		r := k.readState()
		switch {
		case r.known && r.isFailing():
			if first == nil || r.Since.Before(first.Since) {
				first, firstResource = &r, k.resource
			}
		case r.Unwatched && !r.missing:
			listed = append(listed, k.resource)
		}
	}
	if first != nil {
		out = append(out, fmt.Sprintf("the cluster has not been read since %s, what you see may be older: %s: %s",
			clockTime(first.Since), firstResource, message.OneLine(first.Err)))
	}
	if len(listed) > 0 {
		out = append(out, "you may list but not watch "+strings.Join(listed, ", ")+": changes show half a minute late")
	}
	return out
}

// stateChanged wakes callers of Sync, and signals a change.
func (l *Live) stateChanged(k *kind) {
	if r := k.readState(); r.isFailing() {
		time.AfterFunc(l.patience, l.signalChange) // from then on snapshots say so
	}
	l.mu.Lock()
	close(l.answered)
	l.answered = make(chan struct{})
	l.mu.Unlock()
	l.signalChange()
}

// signalChange signals a change.
func (l *Live) signalChange() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
