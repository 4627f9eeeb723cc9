package crd

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"zonewise.dev/internal/informer"
	"zonewise.dev/internal/message"
	"zonewise.dev/internal/metrics"
)

// The limit of all requests, in requests a second: statuses above all.
const statusQPS, statusBurst = 20, 40

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
type Server struct{ client client.WithWatch }

var _ Source = &Server{}

// Connect makes a client of the API server behind config. It makes no request: an API server that cannot be reached
// shows as a kind that is not available. An error says that config cannot be used.
func Connect(config *rest.Config) (*Server, error) {
	adoptLogger()
	metrics.MustRegister(available)
	config = rest.CopyConfig(config)
	// The scheduler's config speaks protobuf, which custom resources do not.
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	// A limit of its own, so that statuses never take requests from binding.
	config.RateLimiter, config.QPS, config.Burst = nil, statusQPS, statusBurst
	c, err := client.NewWithWatch(config, client.Options{Scheme: knownTypes})
	if err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	return &Server{c}, nil
}

// Watch implements Source.
func (s *Server) Watch(ctx context.Context, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(available bool)) (Kind, error) {
	gvk, err := apiutil.GVKForObject(obj, knownTypes)
	if err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	list, err := knownTypes.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	k := &kind{
		logger: klog.FromContext(ctx).WithValues("kind", gvk.GroupKind().String(), "version", gvk.Version),
		gauge:  available.WithLabelValues(gvk.Group, gvk.Kind), onChange: onChange,
	}
	k.gauge.Set(0)
	k.informer = informer.New(informer.Config{
		Client: s.client, Example: obj, List: list.(client.ObjectList), //nolint:forcetypeassert // lists of a scheme are lists of objects
		Handler: handler, StateChanged: k.stateChanged,
	})
	go k.informer.Run(ctx)
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

// kind is one watched kind.
type kind struct {
	informer *informer.Observed
	logger   klog.Logger
	gauge    compbasemetrics.GaugeMetric
	onChange func(available bool) // may be nil

	// What was last said of the kind, by stateChanged, which is called once at a time.
	available       bool
	sentence, fault string
}

// Available implements Kind.
func (k *kind) Available() bool {
	state := k.informer.State()
	return state.Served()
}

// HasSynced implements Kind.
func (k *kind) HasSynced() bool {
	state := k.informer.State()
	return state.Listed && state.Served()
}

// Settled implements Kind.
func (k *kind) Settled() bool {
	return k.HasSynced() || k.informer.State().Refused == informer.NotInstalled
}

// stateChanged says what has changed: to whom it concerns, in the log and in the metric.
func (k *kind) stateChanged() {
	state := k.informer.State()
	served := state.Served()
	k.gauge.Set(0)
	if state.Listed && served {
		k.gauge.Set(1)
	}
	if sentence := sentenceOf(&state); sentence != k.sentence && sentence != "" {
		k.sentence = sentence
		k.logger.Info(sentence)
	}
	fault := ""
	if state.Err != nil && informer.RefusalOf(state.Err) != informer.NotInstalled {
		fault = message.OneLine(state.Err)
	}
	if fault != k.fault && fault != "" {
		k.logger.Info("Could not read the custom resource; will try again", "err", fault)
	}
	k.fault = fault
	if served != k.available {
		k.available = served
		if k.onChange != nil {
			k.onChange(served)
		}
	}
}

// sentenceOf says whether the API server serves the kind.
func sentenceOf(state *informer.State) string {
	switch {
	case state.Refused == informer.NotInstalled && state.Listed:
		return "CustomResourceDefinition is gone: the feature that needs it is off until it is back"
	case state.Refused == informer.NotInstalled:
		return "CustomResourceDefinition is not installed: the feature that needs it is off until it is"
	case state.Served():
		return "Custom resource is served: the feature that needs it is on"
	}
	return ""
}
