package crd

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
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"zonewise.dev/internal/metrics"
)

const (
	// While a kind is missing or the API server does not answer, discovery is asked at intervals that grow from
	// missingInterval to missingIntervalLimit; while it is served, every servedInterval. A request costs the API
	// server little.
	missingInterval      = 200 * time.Millisecond
	missingIntervalLimit = 10 * time.Second
	servedInterval       = 30 * time.Second

	// The limit of all requests, in requests a second: statuses above all.
	statusQPS, statusBurst = 20, 40
)

// available tells operators of a feature that is off because its custom resource is missing.
var available = metrics.NewGaugeVec(&compbasemetrics.GaugeOpts{
	Namespace:      metrics.Namespace,
	Name:           "crd_available",
	Help:           "1 while the API server serves the custom resource and its cache has synced; 0 while the feature that needs it is off.",
	StabilityLevel: compbasemetrics.ALPHA,
}, []string{"group", "kind"})

// adoptLogger gives controller-runtime, which would otherwise print a stack trace that it has no logger, the
// one that the scheduler logs with.
var adoptLogger = sync.OnceFunc(func() { log.SetLogger(klog.Background()) })

// Server is an API server with custom resources. Make one with Connect.
type Server struct {
	cache     cache.Cache
	client    client.Client
	discovery discovery.DiscoveryInterface
}

var _ Source = &Server{}

// Connect prepares the watches of the API server behind config, until ctx ends. It makes no request: an API server that
// cannot be reached shows as a kind that is not available. An error says that config cannot be used.
func Connect(ctx context.Context, config *rest.Config) (*Server, error) {
	adoptLogger()
	metrics.MustRegister(available)
	config = rest.CopyConfig(config)
	// The scheduler's config speaks protobuf, which custom resources do not.
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	// A limit of its own, so that statuses never take requests from binding.
	config.RateLimiter, config.QPS, config.Burst = nil, statusQPS, statusBurst
	s, err := connect(config)
	if err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	go func() {
		if err := s.cache.Start(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The cache of custom resources stopped")
		}
	}()
	return s, nil
}

func connect(config *rest.Config) (*Server, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, err
	}
	s := &Server{}
	if s.cache, err = cache.New(config, cache.Options{Scheme: knownTypes, HTTPClient: httpClient, Mapper: mapper}); err != nil {
		return nil, err
	}
	if s.client, err = client.New(config, client.Options{Scheme: knownTypes, HTTPClient: httpClient, Mapper: mapper}); err != nil {
		return nil, err
	}
	s.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	return s, err
}

// kind is one watched kind.
type kind struct {
	absent       atomic.Bool // the API server has said that it does not serve the kind
	served       atomic.Bool // it does, and the kind is watched
	registration atomic.Pointer[toolscache.ResourceEventHandlerRegistration]
}

// Available implements Kind.
func (k *kind) Available() bool { return k.served.Load() }

// HasSynced implements Kind.
func (k *kind) HasSynced() bool {
	registration := k.registration.Load()
	return k.served.Load() && registration != nil && (*registration).HasSynced()
}

// Settled implements Kind.
func (k *kind) Settled() bool { return k.HasSynced() || k.absent.Load() }

// Watch implements Source.
func (s *Server) Watch(ctx context.Context, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(available bool)) (Kind, error) {
	gvk, err := apiutil.GVKForObject(obj, knownTypes)
	if err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	k := &kind{}
	available.WithLabelValues(gvk.Group, gvk.Kind).Set(0)
	go s.keep(ctx, k, gvk, obj, handler, onChange)
	return k, nil
}

// PatchStatus implements Source.
func (s *Server) PatchStatus(ctx context.Context, was, is client.Object) error {
	// The patch is applied to a copy, which the answer overwrites.
	patched := is.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	return s.client.Status().Patch(ctx, patched, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
}

// Read implements Source.
func (s *Server) Read(ctx context.Context, obj client.Object) error {
	return s.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// keep looks after one kind until ctx ends.
func (s *Server) keep(ctx context.Context, k *kind, gvk schema.GroupVersionKind, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(bool)) {
	logger := klog.FromContext(ctx).WithValues("kind", gvk.GroupKind().String(), "version", gvk.Version)
	backoff := newMissingBackoff()
	said := false
	for ctx.Err() == nil {
		served, err := s.serves(gvk)
		if err == nil {
			k.absent.Store(!served)
		}
		if err == nil && served && k.registration.Load() == nil {
			err = s.register(ctx, k, obj, handler)
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

		pause := servedInterval
		switch {
		case !k.served.Load():
			pause = backoff.Step()
		case !k.HasSynced():
			pause = missingInterval
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
	return wait.Backoff{Duration: missingInterval, Factor: 1.5, Jitter: 0.1, Steps: 20, Cap: missingIntervalLimit}
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
func (s *Server) serves(gvk schema.GroupVersionKind) (bool, error) {
	resources, err := s.discovery.ServerResourcesForGroupVersion(gvk.GroupVersion().String())
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
func (s *Server) register(ctx context.Context, k *kind, obj client.Object, handler toolscache.ResourceEventHandler) error {
	informer, err := s.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
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
