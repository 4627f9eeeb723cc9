package policies

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crdcache"
)

// Watch is a running watch of ZoneSpreadPolicies, and the way to write their status.
type Watch interface {
	// Settled reports whether all policies that existed at first have been delivered, or there is no such resource.
	Settled() bool
	// PatchStatus applies a JSON merge patch to the status subresource of a policy.
	PatchStatus(ctx context.Context, namespace, name string, patch []byte) error
}

// Source starts a watch that delivers policies to handler until ctx ends, and calls onChange when their kind becomes
// available or stops being so. It must not call either before it returns.
type Source func(ctx context.Context, handler toolscache.ResourceEventHandler, onChange func(available bool)) (Watch, error)

// fromAPIServer watches the policies of the API server behind config, as soon as it serves them.
func fromAPIServer(config *rest.Config) Source {
	return func(ctx context.Context, handler toolscache.ResourceEventHandler, onChange func(bool)) (Watch, error) {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			return nil, err
		}
		resource := v1alpha1.SchemeGroupVersion.WithResource("zonespreadpolicies")
		return crdcache.WatchResource(ctx, config, scheme, resource, &v1alpha1.ZoneSpreadPolicy{}, handler, onChange)
	}
}
