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

	"zonewise.dev/cmd/zonewise/snapshot"
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

// set is the objects of one kind. It is the store of a reflector.
type set struct {
	live   *Live
	client client.WithWatch
	kind   snapshot.Kind

	// Guarded by the lock of live:
	state state
	items map[string]client.Object
}

func newSet(l *Live, c client.WithWatch, kind snapshot.Kind) *set {
	return &set{live: l, client: c, kind: kind, state: state{resource: kind.Resource, needed: kind.Needed}, items: map[string]client.Object{}}
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

// take returns the object without the parts that no report uses, so that a large cluster fits into memory.
func (s *set) take(obj any) (string, client.Object, error) {
	object, ok := obj.(client.Object)
	if !ok || reflect.TypeOf(obj) != reflect.TypeOf(s.kind.Example()) {
		return "", nil, fmt.Errorf("a %T among %s", obj, s.state.resource)
	}
	object = object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	snapshot.Trim(object)
	return object.GetNamespace() + "/" + object.GetName(), object, nil
}

// Add stores an object.
func (s *set) Add(obj any) error {
	key, object, err := s.take(obj)
	if err != nil {
		return err
	}
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	s.items[key] = object
	s.live.tellLocked(false)
	return nil
}

// Update is Add.
func (s *set) Update(obj any) error { return s.Add(obj) }

// Delete removes an object.
func (s *set) Delete(obj any) error {
	key, _, err := s.take(obj)
	if err != nil {
		return err
	}
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	delete(s.items, key)
	s.live.tellLocked(false)
	return nil
}

// Replace stores a whole list.
func (s *set) Replace(list []any, _ string) error {
	items := make(map[string]client.Object, len(list))
	for _, obj := range list {
		key, object, err := s.take(obj)
		if err != nil {
			return err
		}
		items[key] = object
	}
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	s.items = items
	s.state.answered, s.state.missing, s.state.failed = true, "", nil
	s.live.tellLocked(true)
	return nil
}

// Resync does nothing.
func (s *set) Resync() error { return nil }
