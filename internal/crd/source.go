package crd

import (
	"context"
	"reflect"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/informer"
)

// Scheme returns a new scheme with the custom resources of the pack: its own, and PodGroup. PriorityClass is there as
// well, a built-in kind that a scheduler's role may not let it read, which must not keep the scheduler from starting.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(schedulingv1alpha1.AddToScheme(scheme))
	utilruntime.Must(schedulingv1.AddToScheme(scheme))
	return scheme
}

// Source is where the custom resources of one scheduler are. Its methods may be called from several goroutines.
type Source interface {
	// Watch delivers the events of all objects of obj's kind to handler, from the time that the kind is served,
	// until ctx ends. It returns at once. An error says that obj's type is not in the scheme.
	//
	// onChange, when it is not nil, is called each time that Available changes, from another goroutine. A kind
	// that is taken away and installed again is delivered again by the same watch.
	Watch(ctx context.Context, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(available bool)) (Kind, error)
	// PatchStatus gives the object the status of is. It is refused, with a conflict, when the object has changed
	// since was.
	PatchStatus(ctx context.Context, was, is client.Object) error
	// Read fills obj, which has a namespace and a name, with the object as it is now, whatever a watch has shown.
	Read(ctx context.Context, obj client.Object) error
}

// Kind is one watched kind. Its methods may be called from several goroutines.
type Kind interface {
	// Available reports whether the kind is served, as far as was last seen. False covers an API server that has
	// not been reached yet.
	Available() bool
	// HasSynced reports whether the kind is available and its handler has seen every object that existed when the
	// watch began.
	HasSynced() bool
	// Settled reports whether what exists is known: HasSynced, or the API server has said that it does not serve
	// the kind.
	Settled() bool
}

// Watch watches the objects of type T, which is a pointer type such as *v1alpha1.ZoneSpreadPolicy. See [Source].
func Watch[T client.Object](ctx context.Context, source Source, handler informer.Funcs[T], onChange func(available bool)) (Kind, error) {
	obj := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) //nolint:forcetypeassert // T is the pointer to what is made
	return source.Watch(ctx, obj, handler, onChange)
}

var knownTypes = Scheme()
