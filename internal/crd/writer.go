package crd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

const (
	// A write that failed is tried again after retryInterval, then after twice as long each time, up to
	// retryIntervalLimit; a change of the object tries it again at once.
	retryInterval      = 500 * time.Millisecond
	retryIntervalLimit = time.Minute
	// writers is how many statuses are written at a time, so that one slow answer does not hold up the others.
	writers = 4
)

// Writer keeps the status of the objects of one kind as want says. Make one with NewWriter; its methods may be called
// from several goroutines.
type Writer[T client.Object] struct {
	kind    string
	source  Source
	want    func(uid types.UID) (was, is T, ok bool)
	written func(was, is T)
	queue   priorityqueue.PriorityQueue[types.UID]
	busy    atomic.Int32
}

// NewWriter returns a writer for a kind, whose name is for the log. Until Run it only remembers what to look at.
//
// want returns an object as last seen and a copy of it with the status that it should have; ok is false for an object that is
// gone or whose status is not to be touched. It is called again for a later write, so it must not remember that it was
// called. written, which may be nil, is called after each status that was written. Both are called from the writer's
// goroutines.
func NewWriter[T client.Object](source Source, kind string, want func(uid types.UID) (was, is T, ok bool), written func(was, is T)) *Writer[T] {
	return &Writer[T]{
		kind: kind, source: source, want: want, written: written,
		queue: priorityqueue.New("zonewise_status_"+kind, func(o *priorityqueue.Opts[types.UID]) {
			o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](retryInterval, retryIntervalLimit)
		}),
	}
}

// Now has a status looked at at once, before those of Later: something rests on it.
func (w *Writer[T]) Now(uid types.UID) {
	w.queue.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(1)}, uid)
}

// Later has a status looked at after a pause, which gathers the changes that come meanwhile.
func (w *Writer[T]) Later(uid types.UID, pause time.Duration) {
	w.queue.AddWithOpts(priorityqueue.AddOpts{After: pause}, uid)
}

// Idle reports whether there is nothing to write now. What waits for a pause does not count.
func (w *Writer[T]) Idle() bool { return w.queue.Len() == 0 && w.busy.Load() == 0 }

// Run writes until ctx ends. Only the leader may call it, once.
func (w *Writer[T]) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for w.next(ctx) {
			}
		})
	}
	group.Wait()
}

// Stop ends a writer that is not run: what it remembers is forgotten.
func (w *Writer[T]) Stop() { w.queue.ShutDown() }

// next looks at one status. It returns false when the writer has ended.
func (w *Writer[T]) next(ctx context.Context) bool {
	uid, priority, shutdown := w.queue.GetWithPriority()
	if shutdown {
		return false
	}
	w.busy.Add(1)
	defer w.busy.Add(-1)
	defer w.queue.Done(uid)
	was, is, ok := w.want(uid)
	if !ok || apiequality.Semantic.DeepEqual(was, is) {
		w.queue.Forget(uid)
		return true
	}
	switch err := w.source.PatchStatus(ctx, was, is); {
	case err == nil:
		w.queue.Forget(uid)
		if w.written != nil {
			w.written(was, is)
		}
	case apierrors.IsNotFound(err): // the watch is about to say so
		w.queue.Forget(uid)
	case ctx.Err() != nil:
	default:
		// After a conflict the watch is about to bring a newer object.
		logger := klog.FromContext(ctx).WithValues("kind", w.kind, "object", klog.KObj(was))
		if apierrors.IsConflict(err) {
			logger.V(4).Info("The object has changed since its status was made; will try again", "err", err)
		} else {
			logger.Error(err, "Could not write a status; will try again")
		}
		w.queue.AddWithOpts(priorityqueue.AddOpts{RateLimited: true, Priority: ptr.To(priority)}, uid)
	}
	return true
}
