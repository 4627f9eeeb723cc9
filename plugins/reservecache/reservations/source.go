package reservations

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crdcache"
)

// Watch is a running watch of ZoneReservations, and the way to write their status.
type Watch interface {
	// Settled reports whether all reservations that existed at first have been delivered, or there is no such resource.
	Settled() bool
	// PatchStatus applies a JSON merge patch to the status subresource of a reservation. namespace is empty.
	PatchStatus(ctx context.Context, namespace, name string, patch []byte) error
}

// Source starts a watch that delivers reservations to handler until ctx ends, and calls onChange when their kind becomes
// available or stops being so. It must not call either before it returns.
type Source func(ctx context.Context, handler toolscache.ResourceEventHandler, onChange func(available bool)) (Watch, error)

// fromAPIServer watches the reservations of the API server behind config, as soon as it serves them.
func fromAPIServer(config *rest.Config) Source {
	return func(ctx context.Context, handler toolscache.ResourceEventHandler, onChange func(bool)) (Watch, error) {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			return nil, err
		}
		resource := v1alpha1.SchemeGroupVersion.WithResource("zonereservations")
		return crdcache.WatchResource(ctx, config, scheme, resource, &v1alpha1.ZoneReservation{}, handler, onChange)
	}
}

// startWatch starts the watch of reservations.
func (s *Reservations) startWatch(ctx context.Context, config *rest.Config) error {
	source := s.source
	if source == nil {
		source = fromAPIServer(config)
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: s.seen,
		UpdateFunc: func(before, after any) {
			if was, ok := object(before); ok {
				if is, ok := object(after); ok && was.UID != is.UID {
					s.gone(before) // another reservation of the name
				}
			}
			s.seen(after)
		},
		DeleteFunc: s.gone,
	}
	watch, err := source(ctx, handler, s.servedChanged)
	if err != nil {
		return fmt.Errorf("watching ZoneReservations: %w", err)
	}
	s.watch = watch
	return nil
}

// object returns the reservation of an event, also of a deletion whose last state is not known for sure.
func object(o any) (*v1alpha1.ZoneReservation, bool) {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	obj, ok := o.(*v1alpha1.ZoneReservation)
	return obj, ok
}
