package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/leader"
	"zonewise.dev/plugins"
)

// Options say how a copy is run. The zero value is good.
type Options struct {
	// Config is the configuration of the scheduler; nil is the shipped one for all three plugins, see ParseConfig.
	Config *config.KubeSchedulerConfiguration
	// Now is the time at which the copy begins; zero is the time of the call.
	Now time.Time
	// Seed decides what a real scheduler leaves to chance or to the order of events: which of equal nodes a pod takes, and
	// in which order controllers make lost pods again.
	Seed int64
	// Prefer, when it is not nil, names the node that a pod takes if no other is better, before Seed decides: by its score or,
	// when the pod evicts others, by what those are. It lets a copy follow what a cluster did.
	Prefer func(pod *v1.Pod, evicts bool) string
	// Bare says that no controller makes pods in the place of those that are evicted.
	Bare bool
	// Patience is for how long of the copy's time nothing has to happen before what waits is taken to wait for ever.
	// Zero is enough for the grace periods of all ZoneSpreadPolicies and for the backoff of gangs.
	Patience time.Duration
	// NotInstalled are the custom resources that the cluster does not have, such as "podgroups.scheduling.x-k8s.io".
	NotInstalled []string
	// Pods, when it is not nil, says how each pod without a node takes part in the copy: as what it returns, or not at all
	// when that is nil. It must not modify the pod.
	Pods func(pod *v1.Pod) *v1.Pod
	// Progress, when it is not nil, is called now and then while pods are scheduled, from the goroutine that called.
	Progress func(Progress)
}

// Progress is how far a run has come.
type Progress struct {
	// Cycles is how many scheduling cycles there were, Bound how many pods have got a node, since the Sim was made.
	Cycles, Bound int
	// Waiting is how many pods have none now.
	Waiting int
	// Now is the time in the copy.
	Now time.Time
}

// Sim is a copy of a cluster with a scheduler. Make one with New. Its methods are to be called from one goroutine at a
// time; several Sims may run at once.
type Sim struct {
	options Options
	ctx     context.Context
	stop    context.CancelFunc

	store     *store
	clock     *virtualClock
	scheduler *scheduler.Scheduler
	snapshot  *internalcache.Snapshot
	pack      *plugins.Pack
	flights   *flights
	// handleFailure is the scheduler's own failure handler.
	handleFailure scheduler.FailureHandlerFn
	// requests is how many calls of the API are being answered.
	requests atomic.Int32

	ready   chan struct{}
	popped  bool // by the last cycle
	cycles  int
	bound   atomic.Int32
	flushed time.Time
	// progressed is when something happened last that can make a difference to what waits.
	progressed time.Time

	mu sync.Mutex // guards what follows
	// failures has the last answer of the scheduler for each pod that it could not place.
	failures map[types.UID]*fwk.Status
	events   []Event
	evicted  []*v1.Pod
	made     map[types.UID]bool
	moved    bool
	serial   int
	stopping time.Time // when the last of the pods that are being deleted ends
}

// Event is an event that the scheduler recorded in the copy.
type Event struct {
	Kind, Namespace, Name string
	Type, Reason, Note    string
}

// New copies a cluster. The objects are of the kinds of [Kinds], and are never modified: they may be shared with informers
// and with other Sims. Pods that are not bound wait until Run. The Sim ends with ctx, or with Close.
func New(ctx context.Context, objects []client.Object, options Options) (*Sim, error) {
	if options.Config == nil {
		var err error
		if options.Config, err = DefaultConfig(); err != nil {
			return nil, err
		}
	}
	if options.Now.IsZero() {
		options.Now = time.Now()
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.SchedulerAsyncAPICalls) {
		return nil, errors.New("the feature gate SchedulerAsyncAPICalls is on, with which a simulation does not know when a request is done")
	}
	ctx, stop := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	s := &Sim{
		options: options, ctx: ctx, stop: stop, ready: make(chan struct{}), clock: newClock(options.Now), flights: newFlights(),
		snapshot: internalcache.NewEmptySnapshot(), failures: map[types.UID]*fwk.Status{}, made: map[types.UID]bool{}, progressed: options.Now, flushed: options.Now,
	}
	s.store = newStore(s.clock.creep)
	if err := s.start(objects); err != nil {
		stop()
		return nil, err
	}
	return s, nil
}

// Close ends the Sim.
func (s *Sim) Close() {
	s.stop()
	_ = s.scheduler.Profiles.Close()
}

func (s *Sim) start(objects []client.Object) error {
	for _, name := range s.options.NotInstalled {
		for _, k := range s.store.order {
			k.served = k.served && k.resource.String() != name
		}
	}
	if s.options.Pods != nil {
		objects = slices.Clone(objects)
		for i, obj := range objects {
			if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName == "" && !ended(pod) {
				if objects[i] = nil; s.options.Pods(pod) != nil {
					objects[i] = s.options.Pods(pod)
				}
			}
		}
		objects = slices.DeleteFunc(objects, func(obj client.Object) bool { return obj == nil })
	}
	if err := s.store.load(objects); err != nil {
		return err
	}
	config := &rest.Config{Host: "http://copy.invalid", QPS: -1, Transport: s.newAPI()}
	clientset, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: config.Transport})
	if err != nil {
		return err
	}
	s.pack = plugins.NewPack(plugins.WithClock(s.clock), plugins.WithSource(source{s.store, s.busy}))
	registry := frameworkruntime.Registry{}
	for name, factory := range s.pack.Factories() {
		registry[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			return factory(ctx, args, h)
		}
	}
	cfg := s.options.Config.DeepCopy()
	for i := range cfg.Extenders {
		cfg.Extenders[i].BindVerb = "" // an extender is asked, and binds nothing for real
	}
	factory := newInformerFactory(clientset, s.store)
	s.scheduler, err = scheduler.New(s.ctx, clientset, factory, nil,
		func(string) events.EventRecorderLogger { return recorder{s} },
		scheduler.WithComponentConfigVersion(cfg.TypeMeta.APIVersion),
		scheduler.WithKubeConfig(config),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithPercentageOfNodesToScore(cfg.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds),
		scheduler.WithExtenders(cfg.Extenders...),
		scheduler.WithParallelism(1), // so that nodes are looked at in one order
		scheduler.WithNodeInfoSnapshot(s.snapshot),
		scheduler.WithClock(queueClock{s.clock}),
	)
	if err != nil {
		return fmt.Errorf("the scheduler cannot be built from its configuration: %w", err)
	}
	s.handleFailure = s.scheduler.FailureHandler
	s.scheduler.FailureHandler = s.failed
	for name, f := range s.scheduler.Profiles {
		s.scheduler.Profiles[name] = s.adopt(f)
	}
	// A queue that is closed does not wait for pods: Pop returns nothing when there are none.
	s.scheduler.SchedulingQueue.Close()
	s.scheduler.NextEntity = s.next

	close(s.ready)
	factory.Start(s.ctx.Done())
	s.store.mu.Lock()
	s.store.started = true
	s.store.firstLocked()
	s.store.mu.Unlock()
	s.store.deliver()
	for _, f := range s.scheduler.Profiles {
		leader.Of(s.ctx, f).Cycle() // there is no other replica
	}
	for range 3 { // what one worker has found out may start another one
		s.store.deliver()
		othersRest(startRestLimit) // before the time moves: what begins now counts from now
		if err := s.settle(s.ctx); err != nil {
			return err
		}
		s.clock.owe(pollInterval) // for those that wait until everything is known
	}
	return s.settle(s.ctx)
}

// busy counts a request until done is called.
func (s *Sim) busy() (done func()) {
	s.requests.Add(1)
	return func() { s.requests.Add(-1) }
}

// Profiles returns the scheduler names of the configuration's profiles, in their order.
func (s *Sim) Profiles() []string {
	var out []string
	for i := range s.options.Config.Profiles {
		out = append(out, s.options.Config.Profiles[i].SchedulerName)
	}
	return out
}

// Now is the time in the copy.
func (s *Sim) Now() time.Time { return s.clock.Now() }

// Fork returns another Sim that begins as this one is now, with a scheduler of its own. Objects are shared, so that it takes
// the time and memory of the scheduler's and the plugins' caches only.
func (s *Sim) Fork(ctx context.Context, change func(*Options)) (*Sim, error) {
	options := s.options
	options.Now, options.Pods = s.Now(), nil
	if change != nil {
		change(&options)
	}
	return New(ctx, s.store.objects(), options)
}

// Objects returns all objects as they are now. They must not be modified.
func (s *Sim) Objects() []client.Object { return s.store.objects() }

// List returns the objects of a kind as they are now, in the order of their keys. They must not be modified.
func List[T client.Object](s *Sim) []T { return list[T](s.store) }

// Get returns an object by its namespace, which is empty for one that is in none, and its name.
func Get[T client.Object](s *Sim, namespace, name string) (T, bool) {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	return get[T](s.store, key)
}

// Why returns what the scheduler last said of a pod that it could not place, empty when it said nothing.
func (s *Sim) Why(pod *v1.Pod) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status := s.failures[pod.UID]; status != nil {
		return status.Message()
	}
	return ""
}

// Events returns what the scheduler has recorded about an object.
func (s *Sim) Events(kind, namespace, name string) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Event
	for _, e := range s.events {
		if e.Kind == kind && e.Namespace == namespace && e.Name == name {
			out = append(out, e)
		}
	}
	return out
}

func (s *Sim) noteFailure(uid types.UID, status *fwk.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[uid] = status
}

// progress notes that something has happened that can make a difference.
func (s *Sim) progress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = true
}

// recorder keeps the scheduler's events.
type recorder struct{ sim *Sim }

// WithLogger implements events.EventRecorderLogger.
func (r recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

// Eventf implements events.EventRecorder. Of events that repeat the last one is kept.
func (r recorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	obj, ok := regarding.(client.Object)
	if !ok || reason == "Scheduled" || reason == "FailedScheduling" {
		return // the pod itself says it
	}
	e := Event{Namespace: obj.GetNamespace(), Name: obj.GetName(), Type: eventType, Reason: reason, Note: fmt.Sprintf(note, args...)}
	if gvks, _, err := scheme.ObjectKinds(obj); err == nil {
		e.Kind = gvks[0].Kind
	}
	s := r.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = slices.DeleteFunc(s.events, func(old Event) bool { return old == e })
	s.events = append(s.events, e)
}

var _ framework.Framework = &profile{}
