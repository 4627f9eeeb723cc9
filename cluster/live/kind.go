package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/snapshot"
)

const (
	// pageSize is how many objects one request asks for.
	pageSize = 1000
	// requestTimeout is how long the API server may take for a page, and to begin a watch.
	requestTimeout = time.Minute
)

var errNoAnswer = errors.New("no answer within a minute")

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

// noteLocked records the result of a request; nil is a success.
func (s *state) noteLocked(err error, watching bool, now time.Time) {
	reason := snapshot.ReasonOf(err)
	switch {
	case err == nil && watching:
		s.unwatched = false
	case err == nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		// After the latter two the reflector starts over by itself.
	case watching && reason == snapshot.Forbidden:
		s.unwatched = true // a list follows, and says whether that is all
		return
	case watching && !s.answered && refused(err):
		return // the same, where the server cannot send a first list through a watch
	case reason != "" && !s.needed:
		s.missing, s.answered, s.failed = reason, true, nil
		return
	default:
		if s.failed == nil {
			s.since = now
		}
		s.failed = err
		return
	}
	s.failed = nil
}

// refused reports whether the API server has understood a request and does not serve it.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError
}

// kind is the objects of one kind. It is the store of a reflector, and tells of its changes.
type kind struct {
	cache.Store
	live   *Live
	client client.WithWatch
	kind   snapshot.Kind
	goType reflect.Type
	state  state // guarded by the lock of live
}

func newKind(l *Live, c client.WithWatch, described snapshot.Kind) *kind {
	return &kind{
		Store: cache.NewStore(cache.MetaNamespaceKeyFunc), live: l, client: c, kind: described, goType: reflect.TypeOf(described.Example()),
		state: state{resource: described.Resource, needed: described.Needed},
	}
}

func (k *kind) run(ctx context.Context) {
	source := &cache.ListWatch{ListWithContextFunc: k.list, WatchFuncWithContext: k.watch}
	reflector := cache.NewReflectorWithOptions(source, k.kind.Example(), k, cache.ReflectorOptions{Name: "zonewise"})
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(ctx)
}

// list reads a page. Its objects are trimmed at once, so that a large cluster is never in memory as a whole.
func (k *kind) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	limited, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	page := k.kind.List()
	err := k.client.List(limited, page, &client.ListOptions{Raw: &options, Limit: options.Limit, Continue: options.Continue})
	if err == nil {
		err = snapshot.Each(page, snapshot.Trim)
	}
	if err = errorOf(limited, err); err != nil {
		k.live.note(&k.state, err, false)
		return nil, err
	}
	return page, nil
}

// watch begins a watch whose objects are trimmed.
func (k *kind) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	limited, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(requestTimeout, func() { cancel(errNoAnswer) })
	w, err := k.client.Watch(limited, k.kind.List(), &client.ListOptions{Raw: &options})
	late.Stop()
	err = errorOf(limited, err)
	k.live.note(&k.state, err, true)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &stoppedWatch{watch.Filter(w, trimmed), cancel}, nil
}

// errorOf returns the error of a request, or that it has taken too long.
func errorOf(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return errNoAnswer
	}
	return err
}

// trimmed leaves the parts out of an event's object that no report uses. A bookmark keeps its annotation, which says that a first list
// has come through the watch: without it the reflector waits for ever.
func trimmed(e watch.Event) (watch.Event, bool) {
	if obj, ok := e.Object.(client.Object); ok && e.Type != watch.Bookmark {
		snapshot.Trim(obj)
	}
	return e, true
}

// stoppedWatch is a watch whose context ends with it.
type stoppedWatch struct {
	watch.Interface
	cancel context.CancelCauseFunc
}

// Stop implements watch.Interface.
func (w *stoppedWatch) Stop() {
	w.Interface.Stop()
	w.cancel(nil)
}

// check refuses an object of another kind.
func (k *kind) check(obj any) error {
	if reflect.TypeOf(obj) != k.goType {
		return fmt.Errorf("a %T among %s", obj, k.state.resource)
	}
	return nil
}

// Add stores an object.
func (k *kind) Add(obj any) error {
	if err := k.check(obj); err != nil {
		return err
	}
	defer k.live.tell()
	return k.Store.Add(obj)
}

// Update stores an object.
func (k *kind) Update(obj any) error { return k.Add(obj) }

// Delete removes an object.
func (k *kind) Delete(obj any) error {
	defer k.live.tell()
	return k.Store.Delete(obj)
}

// Replace stores a whole list.
func (k *kind) Replace(list []any, version string) error {
	for _, obj := range list {
		if err := k.check(obj); err != nil {
			return err
		}
	}
	if err := k.Store.Replace(list, version); err != nil {
		return err
	}
	k.live.mu.Lock()
	defer k.live.mu.Unlock()
	k.state.answered, k.state.missing, k.state.failed = true, "", nil
	k.live.answerLocked()
	return nil
}
