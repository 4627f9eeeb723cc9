package sim

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mark is what a Sim needs to go back to an earlier state of its objects.
type mark struct {
	// before has each object that has been changed since, as it was; nil for one that was not there.
	before map[*kind]map[string]client.Object
	made   map[types.UID]*v1.Pod
}

// rememberLocked remembers an object before it is changed for the first time since the mark.
func (s *store) rememberLocked(k *kind, key string) {
	if s.marked == nil {
		return
	}
	objects := s.marked.before[k]
	if objects == nil {
		objects = map[string]client.Object{}
		s.marked.before[k] = objects
	}
	if _, noted := objects[key]; !noted {
		objects[key] = k.currentLocked(key)
	}
}

// Mark remembers the objects as they are now, in place of an earlier mark. From then on each change costs a look-up.
func (s *Sim) Mark() {
	made := s.Replaced()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.marked = &mark{before: map[*kind]map[string]client.Object{}, made: made}
}

// Change is an object as it was at the mark, and as it is now; nil where it is not there.
type Change[T client.Object] struct{ Before, After T }

// Changes returns the objects of a kind that have changed since the mark, in the order of their keys. They must not be
// modified.
func Changes[T client.Object](s *Sim) []Change[T] {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.store.marked == nil {
		return nil
	}
	k := kindFor[T](s.store)
	var out []Change[T]
	for _, key := range sortedKeys(s.store.marked.before[k]) {
		before, after := s.store.marked.before[k][key], k.currentLocked(key)
		if before == after {
			continue
		}
		var c Change[T]
		c.Before, _ = before.(T)
		c.After, _ = after.(T)
		out = append(out, c)
	}
	return out
}

// Rewind makes all objects again what they were at the mark. To the scheduler these are changes like any others: time
// goes on, and what a plugin remembers stays. The next Run lets the plugins follow; Changes then says in which statuses
// they have come to another result.
func (s *Sim) Rewind() {
	s.store.mu.Lock()
	marked := s.store.marked
	s.store.mu.Unlock()
	if marked == nil {
		return
	}
	for _, k := range slices.Backward(s.store.order) {
		for _, key := range sortedKeys(marked.before[k]) {
			if marked.before[k][key] == nil {
				s.store.remove(k, key)
			}
		}
	}
	for _, k := range s.store.order {
		for _, key := range sortedKeys(marked.before[k]) {
			before := marked.before[k][key]
			s.store.mu.Lock()
			same := k.currentLocked(key) == before
			s.store.mu.Unlock()
			if !same {
				_ = s.store.put(before) // its kind is known
			}
		}
	}
	s.mu.Lock()
	s.replaced, s.toCreate = marked.made, nil
	s.mu.Unlock()
	s.Mark()
	s.noteChange()
}

func sortedKeys(objects map[string]client.Object) []string {
	return slices.Sorted(maps.Keys(objects))
}
