// Package crdtest has a source of custom resources in memory, for tests of what watches them and writes their status.
package crdtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/crd"
)

// Source is a crd.Source in memory, which serves every kind from the start. Make one with New. Its methods may be
// called from several goroutines. Events are delivered by the goroutine that causes them, before its call returns.
type Source struct {
	mu      sync.Mutex // guards everything below
	objects map[key]client.Object
	watches []*watch
	absent  map[reflect.Type]bool
	version int
	refuse  error
	patches int
}

type key struct {
	kind reflect.Type
	name types.NamespacedName
}

func keyOf(obj client.Object) key {
	return key{reflect.TypeOf(obj), client.ObjectKeyFromObject(obj)}
}

// New returns a source with the given objects.
func New(objects ...client.Object) *Source {
	s := &Source{objects: map[key]client.Object{}, absent: map[reflect.Type]bool{}}
	for _, obj := range objects {
		s.Put(obj)
	}
	return s
}

var _ crd.Source = &Source{}

// Put creates or replaces an object, as the API server does: it gets a new resource version, a UID if it has none, and
// a new generation if anything but its metadata and status has changed. A status that is set in obj is taken.
func (s *Source) Put(obj client.Object) {
	obj = obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	k := keyOf(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[k]
	if obj.GetUID() == "" {
		obj.SetUID(types.UID("uid-" + k.name.String()))
	}
	switch {
	case before == nil || before.GetUID() != obj.GetUID():
		obj.SetGeneration(1)
	case reflect.DeepEqual(fieldOf(before, "Spec"), fieldOf(obj, "Spec")):
		obj.SetGeneration(before.GetGeneration())
	default:
		obj.SetGeneration(before.GetGeneration() + 1)
	}
	s.storeLocked(k, before, obj)
}

// Delete removes the object with the name of obj; it is no error if there is none.
func (s *Source) Delete(obj client.Object) {
	k := keyOf(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.objects[k]; before != nil {
		delete(s.objects, k)
		for _, w := range s.watchesLocked(k.kind) {
			w.handler.OnDelete(before)
		}
	}
}

// Serve installs or takes away the kind of obj. Objects that exist stay, as those of a CRD that is installed again do
// in an informer, which learns of their end only when it lists them again.
func (s *Source) Serve(obj client.Object, served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := reflect.TypeOf(obj)
	s.absent[kind] = !served
	for _, w := range s.watches {
		if w.kind == kind {
			if served {
				s.deliverLocked(w)
			}
			if w.onChange != nil {
				w.onChange(served)
			}
		}
	}
}

// Refuse has all requests fail with err; nil ends that.
func (s *Source) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

// Writes returns how many statuses were written.
func (s *Source) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.patches
}

// Get returns a copy of the object with the name of like, and whether there is one.
func Get[T client.Object](s *Source, like T) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, ok := s.objects[keyOf(like)]
	if !ok {
		return like, false
	}
	return obj.DeepCopyObject().(T), true //nolint:forcetypeassert // the key has the type
}

// All returns copies of all objects of the kind of like, in no particular order.
func All[T client.Object](s *Source, like T) (all []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, obj := range s.objects {
		if k.kind == reflect.TypeOf(like) {
			all = append(all, obj.DeepCopyObject().(T)) //nolint:forcetypeassert // the key has the type
		}
	}
	return all
}

// Watch implements crd.Source.
func (s *Source) Watch(_ context.Context, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(available bool)) (crd.Kind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watch{source: s, kind: reflect.TypeOf(obj), handler: handler, onChange: onChange}
	s.watches = append(s.watches, w)
	if !s.absent[w.kind] {
		s.deliverLocked(w)
	}
	return w, nil
}

// PatchStatus implements crd.Source.
func (s *Source) PatchStatus(_ context.Context, was, is client.Object) error {
	k := keyOf(is)
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := schema.GroupResource{Resource: k.kind.Elem().Name()}
	current := s.objects[k]
	switch {
	case s.refuse != nil:
		return s.refuse
	case current == nil:
		return apierrors.NewNotFound(resource, k.name.Name)
	case current.GetResourceVersion() != was.GetResourceVersion():
		return apierrors.NewConflict(resource, k.name.Name, errors.New("the object has been modified"))
	}
	after := current.DeepCopyObject().(client.Object)                                                                                //nolint:forcetypeassert // a copy has the type of the original
	reflect.ValueOf(after).Elem().FieldByName("Status").Set(reflect.ValueOf(fieldOf(is.DeepCopyObject().(client.Object), "Status"))) //nolint:forcetypeassert // as above
	s.patches++
	s.storeLocked(k, current, after)
	return nil
}

// Read implements crd.Source. It fails like a write when those are refused.
func (s *Source) Read(_ context.Context, obj client.Object) error {
	k := keyOf(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.objects[k]
	switch {
	case s.refuse != nil:
		return s.refuse
	case current == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: k.kind.Elem().Name()}, k.name.Name)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(current.DeepCopyObject()).Elem())
	return nil
}

func (s *Source) storeLocked(k key, before, after client.Object) {
	s.version++
	after.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[k] = after
	for _, w := range s.watchesLocked(k.kind) {
		if before == nil {
			w.handler.OnAdd(after, false)
		} else {
			w.handler.OnUpdate(before, after)
		}
	}
}

func (s *Source) deliverLocked(w *watch) {
	if w.delivered {
		return
	}
	w.delivered = true
	for k, obj := range s.objects {
		if k.kind == w.kind {
			w.handler.OnAdd(obj, true)
		}
	}
}

func (s *Source) watchesLocked(kind reflect.Type) []*watch {
	var out []*watch
	for _, w := range s.watches {
		if w.kind == kind && !s.absent[kind] {
			out = append(out, w)
		}
	}
	return out
}

func fieldOf(obj client.Object, name string) any {
	field := reflect.ValueOf(obj).Elem().FieldByName(name)
	if !field.IsValid() {
		panic(fmt.Sprintf("crdtest: %T has no field %s", obj, name))
	}
	return field.Interface()
}

// watch is a crd.Kind.
type watch struct {
	source    *Source
	kind      reflect.Type
	handler   toolscache.ResourceEventHandler
	onChange  func(bool)
	delivered bool // guarded by source.mu
}

// Available implements crd.Kind.
func (w *watch) Available() bool {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	return !w.source.absent[w.kind]
}

// HasSynced implements crd.Kind.
func (w *watch) HasSynced() bool { return w.Available() }

// Settled implements crd.Kind.
func (w *watch) Settled() bool { return true }
