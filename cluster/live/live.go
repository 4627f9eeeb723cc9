package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

	mu sync.Mutex // guards answered and the states of kinds
	// answered is closed and replaced whenever a kind has been listed or refused.
	answered chan struct{}
}

// Start follows the cluster behind config until the context ends; see Wait.
func Start(ctx context.Context, config *rest.Config) (*Live, error) {
	c, err := snapshot.NewClient(config)
	if err != nil {
		return nil, err
	}
	l := newLive(patience)
	// The state of a kind keeps its errors; the reflectors need not log them.
	quiet := klog.NewContext(ctx, logr.Logger{})
	for _, described := range snapshot.Kinds() {
		k := newKind(l, c, described)
		l.kinds = append(l.kinds, k)
	}
	for _, k := range l.kinds {
		l.running.Go(func() { k.run(quiet) })
	}
	return l, nil
}

func newLive(patience time.Duration) *Live {
	return &Live{changed: make(chan struct{}, 1), answered: make(chan struct{}), began: time.Now(), patience: patience}
}

// Wait returns when all watches have ended, after the end of the context.
func (l *Live) Wait() { l.running.Wait() }

// Sync waits until the cluster is known: nodes and pods, and each other kind that the API server answers about within half a minute. It
// returns the first error about nodes or pods from the API server or the network, or the end of the context.
func (l *Live) Sync(ctx context.Context) error {
	patient := time.NewTimer(time.Until(l.began.Add(l.patience)))
	defer patient.Stop()
	for impatient := false; ; {
		l.mu.Lock()
		next := l.answered
		waiting := false
		for _, k := range l.kinds {
			s := &k.state
			if s.needed && !s.answered && s.failed != nil {
				l.mu.Unlock()
				return fmt.Errorf("list %s: %w", s.resource, s.failed)
			}
			waiting = waiting || !s.answered && (s.needed || !impatient)
		}
		l.mu.Unlock()
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
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.kinds {
		if lack, ok := l.lackLocked(&k.state, now); ok {
			s.Missing = append(s.Missing, lack)
		}
		if k.state.missing != "" {
			continue // what was known of it may be gone
		}
		for _, key := range slices.Sorted(slices.Values(k.ListKeys())) {
			if obj, ok, _ := k.GetByKey(key); ok {
				s.Add(obj.(client.Object)) //nolint:forcetypeassert // others are refused
			}
		}
	}
	slices.SortFunc(s.Missing, func(a, b snapshot.Missing) int { return strings.Compare(a.Resource, b.Resource) })
	return s
}

// lackLocked returns what a snapshot of that time has to say about a kind, if anything.
func (l *Live) lackLocked(s *state, now time.Time) (snapshot.Missing, bool) {
	lack := snapshot.Missing{Resource: s.resource, Reason: s.missing}
	switch {
	case s.missing != "":
	case !s.answered && now.Sub(l.began) >= l.patience:
		lack.Reason, lack.Detail = snapshot.Unreadable, "the API server does not answer"
		if s.failed != nil {
			lack.Detail = message.OneLine(s.failed)
		}
	case s.answered && s.failed != nil && now.Sub(s.since) >= l.patience:
		lack.Reason, lack.Detail = snapshot.Outdated, fmt.Sprintf("%s: %s", s.since.UTC().Format("15:04:05 MST"), message.OneLine(s.failed))
	default:
		return lack, false
	}
	return lack, true
}

// Lacks returns a line for each kind that is not known, no longer, or not yet. A kind that the cluster does not have lacks nothing.
func (l *Live) Lacks() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, k := range l.kinds {
		s := &k.state
		lack, ok := l.lackLocked(s, time.Now())
		switch {
		case ok && lack.Reason != snapshot.NotInstalled:
			out = append(out, lack.Words())
		case !s.answered:
			out = append(out, s.resource+" have not been read yet")
		}
	}
	return out
}

// Troubles returns the reasons why what has been read is not current, one line each, the most important first.
func (l *Live) Troubles() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out, listed []string
	var first *state
	for _, k := range l.kinds {
		s := &k.state
		switch {
		case s.failed != nil && s.answered:
			if first == nil || s.since.Before(first.since) {
				first = s
			}
		case s.unwatched && s.missing == "":
			listed = append(listed, s.resource)
		}
	}
	if first != nil {
		out = append(out, fmt.Sprintf("the cluster has not been read since %s, what you see may be older: %s: %s",
			first.since.UTC().Format("15:04:05 MST"), first.resource, message.OneLine(first.failed)))
	}
	if len(listed) > 0 {
		out = append(out, "you may list but not watch "+strings.Join(listed, ", ")+": changes show half a minute late")
	}
	return out
}

// note records the result of a list or a watch of a kind.
func (l *Live) note(s *state, err error, watch bool) {
	if errors.Is(err, context.Canceled) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	failed := s.failed != nil
	s.noteLocked(err, watch, time.Now())
	if !failed && s.failed != nil {
		time.AfterFunc(l.patience, l.tell) // from then on snapshots say so
	}
	l.answerLocked()
}

// answerLocked wakes callers of Sync, and signals a change.
func (l *Live) answerLocked() {
	close(l.answered)
	l.answered = make(chan struct{})
	l.tell()
}

// tell signals a change.
func (l *Live) tell() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
