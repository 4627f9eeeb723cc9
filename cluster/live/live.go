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
)

// Live is a cluster that is followed. Its methods may be called from several goroutines.
type Live struct {
	kinds   []*set
	changed chan struct{}
	running sync.WaitGroup

	mu sync.Mutex // guards answered and the states of kinds
	// answered is closed and replaced whenever a kind has been listed or refused.
	answered chan struct{}
}

// state says how the reading of a kind went.
type state struct {
	resource string
	needed   bool
	// answered: the kind has been listed, or the API server has refused.
	answered bool
	missing  string // NotInstalled or Forbidden
	// failed is the last error of listing or watching, nil after a success, and since is when it began.
	failed error
	since  time.Time
	// unwatched: the kind may be listed but not watched.
	unwatched bool
}

// Start follows the cluster behind config until the context ends; see Wait.
func Start(ctx context.Context, config *rest.Config) (*Live, error) {
	c, err := snapshot.NewClient(config)
	if err != nil {
		return nil, err
	}
	l := &Live{changed: make(chan struct{}, 1), answered: make(chan struct{})}
	// The state of a kind keeps its errors; the reflectors need not log them.
	quiet := klog.NewContext(ctx, logr.Logger{})
	for _, kind := range snapshot.Kinds() {
		s := newSet(l, c, kind)
		l.kinds = append(l.kinds, s)
		l.running.Go(func() { s.run(quiet) })
	}
	return l, nil
}

// Wait returns when all watches have ended, after the end of the context.
func (l *Live) Wait() { l.running.Wait() }

// Sync waits until the cluster is known. It returns the first error about nodes or pods
// from the API server or the network, or the end of the context.
func (l *Live) Sync(ctx context.Context) error {
	for {
		l.mu.Lock()
		next := l.answered
		waiting := ""
		for _, k := range l.kinds {
			s := &k.state
			if s.needed && !s.answered && s.failed != nil {
				l.mu.Unlock()
				return fmt.Errorf("list %s: %w", s.resource, s.failed)
			}
			if !s.answered {
				waiting = s.resource
			}
		}
		l.mu.Unlock()
		if waiting == "" {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Changed receives when Snapshot or Troubles may have changed since the last time that it received.
func (l *Live) Changed() <-chan struct{} { return l.changed }

// Snapshot returns the cluster as it is known. The caller owns it, but not what the objects point to.
func (l *Live) Snapshot() *snapshot.Snapshot {
	s := snapshot.New(time.Now().UTC())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.kinds {
		if k.state.missing != "" {
			s.Missing = append(s.Missing, snapshot.Missing{Resource: k.state.resource, Reason: k.state.missing})
			continue
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

// Troubles returns the reasons why the snapshot is not current, one line each, the most important first.
func (l *Live) Troubles() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out, listed []string
	broken := 0
	var first *state
	for _, k := range l.kinds {
		s := &k.state
		switch {
		case s.failed != nil:
			if broken++; first == nil || s.since.Before(first.since) {
				first = s
			}
		case s.unwatched && s.missing == "":
			listed = append(listed, s.resource)
		}
	}
	if first != nil {
		words := strings.Join(strings.Fields(first.failed.Error()), " ")
		out = append(out, fmt.Sprintf("the cluster has not been read since %s, what you see may be older: %s: %s",
			first.since.UTC().Format("15:04:05 MST"), first.resource, words))
	}
	if len(listed) > 0 {
		out = append(out, "you may list but not watch "+strings.Join(listed, ", ")+": changes show half a minute late")
	}
	return out
}

// Lacks returns a line for each kind that is not known, or no longer.
func (l *Live) Lacks() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, k := range l.kinds {
		s := &k.state
		switch {
		case s.failed != nil:
			out = append(out, fmt.Sprintf("%s cannot be read: %s", s.resource, strings.Join(strings.Fields(s.failed.Error()), " ")))
		case !s.answered:
			out = append(out, s.resource+" have not been listed yet")
		}
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
	s.noteLocked(err, watch, time.Now())
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
