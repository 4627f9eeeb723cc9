package watcher

import (
	"time"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store is what the reflector of a Watcher writes to. It trims the objects that come through a watch. Handlers are
// called without the lock.
type store struct{ *Watcher }

var _ cache.TransformingStore = store{}

// Transformer implements cache.TransformingStore. The reflector trims by it what it collects of a list that comes
// through a watch.
func (s store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		s.config.Trim(obj.(client.Object)) //nolint:forcetypeassert // the reflector refuses other kinds
		return obj, nil
	}
}

// Add implements cache.ReflectorStore.
func (s store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s store) Update(obj any) error {
	newer := obj.(client.Object) //nolint:forcetypeassert // as above
	s.config.Trim(newer)
	key := keyOf(newer)
	s.mu.Lock()
	older := s.objects[key]
	s.objects[key] = newer
	s.mu.Unlock()
	s.tell(older, newer, false)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s store) Delete(obj any) error {
	last := obj.(client.Object) //nolint:forcetypeassert // as above
	s.config.Trim(last)
	key := keyOf(last)
	s.mu.Lock()
	known := s.objects[key] != nil
	delete(s.objects, key)
	s.mu.Unlock()
	if known {
		s.config.Handler.OnDelete(last)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s store) Replace(list []any, _ string) error {
	newer := make(map[string]client.Object, len(list))
	for _, item := range list {
		obj := item.(client.Object) //nolint:forcetypeassert // lists are of the kind
		newer[keyOf(obj)] = obj
	}
	s.mu.Lock()
	older, initial := s.objects, !s.state.Listed
	s.objects = newer
	s.mu.Unlock()
	for key, obj := range older {
		if newer[key] == nil {
			s.config.Handler.OnDelete(obj)
		}
	}
	for _, item := range list {
		obj := item.(client.Object) //nolint:forcetypeassert // as above
		s.tell(older[keyOf(obj)], obj, initial)
	}
	s.note(nil, func(state *State, _ error, now time.Time) {
		state.recordList(nil, now)
		state.Listed, state.Refused = true, ""
	})
	return nil
}

// Resync implements cache.ReflectorStore. There is no resync: no event is lost.
func (s store) Resync() error { return nil }

// tell tells the handler of an object, which is new if there is none older.
func (s store) tell(older, newer client.Object, initial bool) {
	switch {
	case older == nil:
		s.config.Handler.OnAdd(newer, initial)
	case older.GetResourceVersion() != newer.GetResourceVersion():
		s.config.Handler.OnUpdate(older, newer)
	}
}

func keyOf(obj client.Object) string { return client.ObjectKeyFromObject(obj).String() }
