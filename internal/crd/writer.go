package crd

import (
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/agenda"
)

const (
	// A write that failed is tried again after retryInterval, then after twice as long each time, up to
	// retryIntervalLimit; a change of the object tries it again at once.
	retryInterval      = 500 * time.Millisecond
	retryIntervalLimit = time.Minute
	// writers is how many statuses are written at a time, so that one slow answer does not hold up the others.
	writers = 4
)

// Writer keeps the status of the objects of one kind as want says. It looks at those of several namespaces in turns, so
// that thousands of one tenant do not keep those of another waiting. Make one with NewWriter; its methods may be called
// from several goroutines.
type Writer[T client.Object] struct {
	kind    string
	source  Source
	want    func(uid types.UID) (was, is T, ok bool)
	written func(was, is T)
	clock   clock.WithTicker
	agenda  *agenda.Agenda[status]
}

// status is what a Writer looks at.
type status struct {
	namespace string
	uid       types.UID
}

// NewWriter returns a writer for a kind, whose name is for the log. Until Run it only remembers what to look at, with
// no bound: a process that may never lead should say nothing until it does.
//
// want returns an object as last seen and a copy of it with the status that it should have; ok is false for an object
// that is gone or whose status is not to be touched. It is called again for a later write, so it must not remember that
// it was called. written, which may be nil, is called after each status that was written. Both are called from the
// writer's goroutines.
func NewWriter[T client.Object](source Source, kind string, want func(uid types.UID) (was, is T, ok bool), written func(was, is T), options ...WriterOption) *Writer[T] {
	o := writerOptions{clock: clock.RealClock{}}
	for _, option := range options {
		option(&o)
	}
	return &Writer[T]{kind: kind, source: source, want: want, written: written, clock: o.clock, agenda: agenda.NewFair(o.clock, func(s status) string {
		return s.namespace
	})}
}

// WriterOption changes what NewWriter makes.
type WriterOption func(*writerOptions)

type writerOptions struct{ clock clock.WithTicker }

// WithClock has the pauses and retries of a Writer go by c instead of the system's clock.
func WithClock(c clock.WithTicker) WriterOption { return func(o *writerOptions) { o.clock = c } }

// Now has the status of an object in a namespace looked at at once, before those of Later: something rests on it.
// Namespaces take turns with these, too. The namespace of a cluster-scoped object is empty.
func (w *Writer[T]) Now(namespace string, uid types.UID) {
	w.agenda.AddAt(status{namespace, uid}, time.Time{})
}

// Later has a status looked at after a pause, which gathers the changes that come meanwhile.
func (w *Writer[T]) Later(namespace string, uid types.UID, pause time.Duration) {
	w.agenda.AddAt(status{namespace, uid}, w.clock.Now().Add(pause))
}

// Idle reports whether there is nothing to write now. What waits for a pause does not count.
func (w *Writer[T]) Idle() bool { return w.agenda.Idle() }

// Run writes until ctx ends. Only the leader may call it, once.
func (w *Writer[T]) Run(ctx context.Context) {
	w.agenda.Run(ctx, writers, func(s status) { w.look(ctx, s) })
}

// Stop ends a writer that is not run: what it remembers is forgotten.
func (w *Writer[T]) Stop() { w.agenda.Run(context.Background(), 0, nil) }

// look looks at one status.
func (w *Writer[T]) look(ctx context.Context, s status) {
	was, is, ok := w.want(s.uid)
	if !ok || apiequality.Semantic.DeepEqual(was, is) {
		w.agenda.Forget(s)
		return
	}
	switch err := w.source.PatchStatus(ctx, was, is); {
	case err == nil:
		w.agenda.Forget(s)
		if w.written != nil {
			w.written(was, is)
		}
	case apierrors.IsNotFound(err): // the watch is about to say so
		w.agenda.Forget(s)
	case ctx.Err() != nil:
	default:
		// After a conflict the watch is about to bring a newer object.
		logger := klog.FromContext(ctx).WithValues("kind", w.kind, "object", klog.KObj(was))
		if apierrors.IsConflict(err) {
			logger.V(4).Info("The object has changed since its status was made; will try again", "err", err)
		} else {
			logger.Error(err, "Could not write a status; will try again")
		}
		w.agenda.Retry(s, retryInterval, retryIntervalLimit)
	}
}
