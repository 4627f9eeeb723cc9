package crdcache

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Settled asks the API server itself whether it serves a resource, every absencePoll for absenceBound.
	absencePoll  = 200 * time.Millisecond
	absenceBound = 5 * time.Second

	// Status is written with a rate limit of its own, in requests a second, so that it never takes any from
	// binding.
	statusQPS, statusBurst = 10, 20
)

// Resource is a custom resource of the scheduler's own: a running watch, and the way to write its status. Its
// methods may be called from several goroutines.
type Resource struct {
	kind     *Kind
	client   rest.Interface
	resource string
	absent   atomic.Bool // the API server has said that it does not serve it
}

// WatchResource watches a resource of the API server behind config, until ctx ends, as Cache.Watch does. obj is of the
// type that is watched, which scheme knows, and resource is its name in URLs. It makes no request before it returns; an
// error is a mistake of the program.
func WatchResource(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, resource schema.GroupVersionResource, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(available bool)) (*Resource, error) {
	limited := rest.CopyConfig(config)
	limited.RateLimiter, limited.QPS, limited.Burst = nil, statusQPS, statusBurst
	statusClient, err := JSONClient(limited, resource.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", resource.Resource, err)
	}
	cache, err := New(config, scheme)
	if err != nil {
		return nil, err
	}
	kind, err := cache.Watch(ctx, obj, handler, onChange)
	if err != nil {
		return nil, err
	}
	go cache.Run(ctx)
	r := &Resource{kind: kind, client: statusClient, resource: resource.Resource}
	go r.lookForAbsence(ctx)
	return r, nil
}

// JSONClient returns a client for the custom resources of a group and version of the API server behind config. It speaks
// JSON, their only language, and keeps the rate limits of config.
func JSONClient(config *rest.Config, gv schema.GroupVersion) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &gv
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = clientscheme.Codecs.WithoutConversion()
	return rest.RESTClientFor(config)
}

// Settled reports whether all objects that existed at first have been delivered, or the API server has said that it does
// not serve the resource.
func (r *Resource) Settled() bool { return r.kind.HasSynced() || r.absent.Load() }

// PatchStatus applies a JSON merge patch to the status subresource of an object. namespace is empty for resources of the
// cluster.
func (r *Resource) PatchStatus(ctx context.Context, namespace, name string, patch []byte) error {
	return r.client.Patch(types.MergePatchType).NamespaceIfScoped(namespace, namespace != "").Resource(r.resource).Name(name).
		SubResource("status").Body(patch).Do(ctx).Error()
}

// lookForAbsence asks until the API server has answered once. The cache says when a kind is there, but not whether
// it has looked.
func (r *Resource) lookForAbsence(ctx context.Context) {
	_ = wait.PollUntilContextTimeout(ctx, absencePoll, absenceBound, true, func(ctx context.Context) (bool, error) {
		err := r.client.Get().Resource(r.resource).Param("limit", "1").Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			r.absent.Store(true)
		}
		return err == nil || r.absent.Load(), nil
	}) // of an API server that does not answer, Settled says that nothing is settled
}
