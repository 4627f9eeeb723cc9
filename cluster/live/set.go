package live

import (
	"context"
	"fmt"
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

// pageSize is how many objects one request asks for.
const pageSize = 1000

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
	case watching && !s.answered && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
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

// set is the objects of one kind. It is the store of a reflector, and tells of its changes.
type set struct {
	cache.Store
	live   *Live
	client client.WithWatch
	kind   snapshot.Kind
	state  state // guarded by the lock of live
}

func newSet(l *Live, c client.WithWatch, kind snapshot.Kind) *set {
	s := &set{live: l, client: c, kind: kind, state: state{resource: kind.Resource, needed: kind.Needed}}
	s.Store = cache.NewStore(cache.MetaNamespaceKeyFunc, cache.WithTransformer(s.trimmed))
	return s
}

func (s *set) run(ctx context.Context) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := s.kind.List()
			err := s.client.List(ctx, list, &client.ListOptions{Raw: &options, Limit: options.Limit, Continue: options.Continue})
			if err != nil {
				s.live.note(&s.state, err, false)
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := s.client.Watch(ctx, s.kind.List(), &client.ListOptions{Raw: &options})
			s.live.note(&s.state, err, true)
			return w, err
		},
	}
	reflector := cache.NewReflectorWithOptions(source, s.kind.Example(), s, cache.ReflectorOptions{Name: "zonewise"})
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(ctx)
}

// trimmed returns the object without the parts that no report uses, so that a large cluster fits into memory.
func (s *set) trimmed(obj any) (any, error) {
	object, ok := obj.(client.Object)
	if !ok || reflect.TypeOf(obj) != reflect.TypeOf(s.kind.Example()) {
		return nil, fmt.Errorf("a %T among %s", obj, s.state.resource)
	}
	object = object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	snapshot.Trim(object)
	return object, nil
}

// Add stores an object.
func (s *set) Add(obj any) error {
	defer s.live.tell()
	return s.Store.Add(obj)
}

// Update stores an object.
func (s *set) Update(obj any) error {
	defer s.live.tell()
	return s.Store.Update(obj)
}

// Delete removes an object.
func (s *set) Delete(obj any) error {
	defer s.live.tell()
	return s.Store.Delete(obj)
}

// Replace stores a whole list.
func (s *set) Replace(list []any, version string) error {
	if err := s.Store.Replace(list, version); err != nil {
		return err
	}
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	s.state.answered, s.state.missing, s.state.failed = true, "", nil
	s.live.answerLocked()
	return nil
}
