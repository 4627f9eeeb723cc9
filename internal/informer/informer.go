// Package informer has what informers of client-go lack here. [Funcs] turns their events into calls with typed objects,
// and handles what an informer may deliver: a deletion whose last object is unknown, and an update that hides a
// deletion. [Observed] is an informer of a kind that may not be installed, and says how its reading goes.
package informer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// Funcs handles the events of objects of type T, one at a time. A function that is nil is not called.
//
// An update that changes the UID means that the informer missed a deletion, and another object has the name now: it
// arrives as Delete and Add.
type Funcs[T metav1.Object] struct {
	// Add gets a new object. initial is true for the objects of the first list.
	Add func(obj T, initial bool)
	// Update gets an object before and after a change; the two may be equal after a relist.
	Update func(was, is T)
	// Delete gets the last known state, which may be older than the last state.
	Delete func(last T)
}

var _ toolscache.ResourceEventHandler = Funcs[metav1.Object]{}

// Latest handles an object's events if only its latest state matters: seen gets it after each change, and gone gets its
// last known state.
func Latest[T metav1.Object](seen, gone func(obj T)) Funcs[T] {
	return Funcs[T]{Add: func(obj T, _ bool) { seen(obj) }, Update: func(_, is T) { seen(is) }, Delete: gone}
}

// OnAdd implements cache.ResourceEventHandler.
func (f Funcs[T]) OnAdd(obj any, initial bool) {
	if t, ok := obj.(T); ok && f.Add != nil {
		f.Add(t, initial)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (f Funcs[T]) OnUpdate(before, after any) {
	was, ok1 := before.(T)
	is, ok2 := after.(T)
	switch {
	case !ok1 || !ok2:
	case was.GetUID() != is.GetUID():
		f.OnDelete(was)
		f.OnAdd(is, false)
	case f.Update != nil:
		f.Update(was, is)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (f Funcs[T]) OnDelete(obj any) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if t, ok := obj.(T); ok && f.Delete != nil {
		f.Delete(t)
	}
}
