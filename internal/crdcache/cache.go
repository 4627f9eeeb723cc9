package crdcache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/metrics"
)

const (
	// While a kind is missing, discovery is asked at intervals that grow from missingPoll to
	// missingPollMax; while it is served, every servedPoll. One request costs the API server little.
	missingPoll    = time.Second
	missingPollMax = 10 * time.Second
	servedPoll     = 30 * time.Second
)

var available = crd.Available

// adoptLogger gives controller-runtime, which would otherwise print a stack trace that it has no logger, the
// one that the scheduler logs with.
var adoptLogger = sync.OnceFunc(func() { log.SetLogger(klog.Background()) })

// Cache watches custom resources of one API server. Its methods may be called from several goroutines.
type Cache struct {
	cache     cache.Cache
	discovery discovery.DiscoveryInterface
	scheme    *runtime.Scheme
}

// New prepares a cache of the API server behind config for the types of scheme. It makes no request:
// an unreachable API server shows as a kind that is not available. Nothing is watched before Run.
func New(config *rest.Config, scheme *runtime.Scheme) (*Cache, error) {
	adoptLogger()
	metrics.MustRegister(available)
	config = rest.CopyConfig(config)
	// The scheduler's config speaks protobuf, which custom resources do not.
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("custom resource cache: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("custom resource cache: %w", err)
	}
	informers, err := cache.New(config, cache.Options{Scheme: scheme, HTTPClient: httpClient, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("custom resource cache: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("custom resource cache: %w", err)
	}
	return &Cache{cache: informers, discovery: client, scheme: scheme}, nil
}

// Run keeps the watches going until ctx ends. It is called once, in a goroutine.
func (c *Cache) Run(ctx context.Context) {
	if err := c.cache.Start(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The cache of custom resources stopped")
	}
}

// Kind is one watched kind.
type Kind struct {
	served       atomic.Bool
	registration atomic.Pointer[toolscache.ResourceEventHandlerRegistration]
}

// Available reports whether the API server serves the kind, as far as was last seen. False covers an
// API server that has not been reached yet.
func (k *Kind) Available() bool { return k.served.Load() }

// HasSynced reports whether the kind is available and its handler has seen every object that existed
// when the watch began.
func (k *Kind) HasSynced() bool {
	registration := k.registration.Load()
	return k.served.Load() && registration != nil && (*registration).HasSynced()
}

// Watch delivers the events of all objects of obj's kind to handler, from the time that the API server
// serves it, until ctx ends. It returns at once; obj must be of a type of the cache's scheme, and an
// error says that it is not.
//
// onChange, when it is not nil, is called from a goroutine of the cache each time that Available
// changes. A kind that is taken away and installed again is delivered again by the same watch.
func (c *Cache) Watch(ctx context.Context, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(available bool)) (*Kind, error) {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return nil, fmt.Errorf("custom resource cache: %w", err)
	}
	k := &Kind{}
	available.WithLabelValues(gvk.Group, gvk.Kind).Set(0)
	go c.keep(ctx, k, gvk, obj, handler, onChange)
	return k, nil
}

// keep looks after one kind until ctx ends.
func (c *Cache) keep(ctx context.Context, k *Kind, gvk schema.GroupVersionKind, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(bool)) {
	logger := klog.FromContext(ctx).WithValues("kind", gvk.GroupKind().String(), "version", gvk.Version)
	backoff := newMissingBackoff()
	said := false
	for ctx.Err() == nil {
		served, err := c.serves(gvk)
		if err == nil && served && k.registration.Load() == nil {
			err = c.register(ctx, k, obj, handler)
		}
		switch {
		case err != nil:
			logger.V(2).Info("Could not look for the custom resource; will look again", "err", err)
		case served != k.served.Load():
			k.served.Store(served)
			if served {
				logger.Info("Custom resource is served: the feature that needs it is on")
			} else {
				logger.Info("CustomResourceDefinition is gone: the feature that needs it is off until it is back")
			}
			if onChange != nil {
				onChange(served)
			}
		case !served && !said:
			said = true
			logger.Info("CustomResourceDefinition is not installed: the feature that needs it is off until it is")
		}

		pause := servedPoll
		switch {
		case !k.served.Load():
			pause = backoff.Step()
		case !k.HasSynced():
			pause = missingPoll
		default:
			backoff = newMissingBackoff()
		}
		setGauge(gvk, k.HasSynced())
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func newMissingBackoff() wait.Backoff {
	return wait.Backoff{Duration: missingPoll, Factor: 1.5, Jitter: 0.1, Steps: 20, Cap: missingPollMax}
}

func setGauge(gvk schema.GroupVersionKind, synced bool) {
	value := 0.0
	if synced {
		value = 1
	}
	available.WithLabelValues(gvk.Group, gvk.Kind).Set(value)
}

// serves asks the API server for the kind. A group or version that it does not know is an answer, any
// other failure is an error.
func (c *Cache) serves(gvk schema.GroupVersionKind) (bool, error) {
	resources, err := c.discovery.ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range resources.APIResources {
		if resources.APIResources[i].Kind == gvk.Kind {
			return true, nil
		}
	}
	return false, nil
}

// register starts the informer of obj's kind with handler behind it.
func (c *Cache) register(ctx context.Context, k *Kind, obj client.Object, handler toolscache.ResourceEventHandler) error {
	informer, err := c.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return err
	}
	if registration == nil {
		return errors.New("the informer has stopped")
	}
	k.registration.Store(&registration)
	return nil
}
