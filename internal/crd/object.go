package crd

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object is a custom resource as the API server last showed it, with what its spec compiles to. The zero Object is one
// that has not been seen. It is not safe for concurrent use: whoever keeps it guards it.
type Object[T client.Object, S any] struct {
	// Latest is the object itself; it must not be changed.
	Latest T
	// Spec is what the spec compiles to; the zero value when Errs is not empty.
	Spec S
	// Errs is what is wrong with the spec, by field.
	Errs field.ErrorList

	seen bool
}

// See takes the object's latest state. It compiles the spec if that is new or has changed, which it reports.
func (o *Object[T, S]) See(latest T, compile func(T) (S, field.ErrorList)) (changed bool) {
	changed = !o.seen || o.Latest.GetUID() != latest.GetUID() || o.Latest.GetGeneration() != latest.GetGeneration()
	o.Latest, o.seen = latest, true
	if changed {
		var none S
		if o.Spec, o.Errs = compile(latest); len(o.Errs) > 0 {
			o.Spec = none
		}
	}
	return changed
}

// Valid reports whether Spec may be used. An object that is being deleted still counts.
func (o *Object[T, S]) Valid() bool { return o.seen && len(o.Errs) == 0 }
