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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/leader"
	"zonewise.dev/plugins"
	"zonewise.dev/sim/kinds"
)

// Options say how to run a copy. The zero value is valid.
type Options struct {
	// Config is the configuration of the scheduler, see ParseConfig. Nil is a shipped one with all three plugins: that
	// of the second scheduler if a pod names it, and otherwise that which replaces kube-scheduler.
	Config *config.KubeSchedulerConfiguration
	// Now is the time at which the copy begins; zero is the time of the call.
	Now time.Time
	// Seed decides what a real scheduler leaves to chance or to the order of events: which of equal nodes a pod takes,
	// which of equal pods on a node is preempted, and the order in which controllers replace lost pods.
	Seed int64
	// Rank, if not nil, gives each lost pod numbers: controllers replace pods in the order of their first numbers, then
	// of the next ones, and Seed decides among equals.
	Rank func(pod *v1.Pod) []int64
	// OneByOne means that each of these pods is made when the scheduler has tried those before it. Otherwise it finds
	// all of them in its queue, and takes those of a higher priority first.
	OneByOne bool
	// Prefer, if not nil, names the node that a pod takes if no other is better, before Seed decides. Better means the
	// score or, if the pod preempts, the victims. So a copy can follow what a cluster did.
	Prefer func(pod *v1.Pod, evicts bool) string
	// Registry has plugins of the caller's own, which the configuration may name.
	Registry frameworkruntime.Registry
	// CallExtenders asks the extenders of the configuration, which are programs elsewhere. They do not bind; what else
	// they do when they are asked about pods that do not exist is not known. Without it the copy has no extenders.
	CallExtenders bool
	// SchedulerNames are those of pods that will be added, see OfOtherScheduler; the names of the cluster's pods are
	// known.
	SchedulerNames []string
	// Bare means that no controller replaces evicted pods.
	Bare bool
	// Hint, if not nil, names the node that the scheduler tries first for the pod by which a controller has replaced
	// one: if the filters admit that node, no other is looked at. Empty names none. Members of gangs have no hint.
	Hint func(replaced *v1.Pod) string
	// Controllers are the kinds of controllers, beside those of Kubernetes, that replace their pods, such as
	// "RayCluster.ray.io".
	Controllers []string
	// Patience is how long, in the copy's time, nothing must happen before a run ends. Zero chooses a time that is
	// longer than the grace periods of all ZoneSpreadPolicies, up to LongestGrace, and the backoff of gangs.
	Patience time.Duration
	// EndWithin is how long after Now a terminating pod of the cluster may take to end: one that takes longer stays.
	// Zero is however long.
	EndWithin time.Duration
	// NotInstalled are the custom resources that the cluster does not have, such as "podgroups.scheduling.x-k8s.io".
	NotInstalled []string
	// Pods, if not nil, returns what each pod without a node is in the copy; nil leaves the pod out. It must not modify
	// the pod.
	Pods func(pod *v1.Pod) *v1.Pod
	// Progress, if not nil, is called from time to time while pods are scheduled, on the caller's goroutine.
	Progress func(Progress)
}

// Progress says how far a run is.
type Progress struct {
	// Cycles is how many scheduling cycles there were, Bound how many pods have got a node, since the Sim was made.
	Cycles, Bound int
	// Waiting is how many pods have none now.
	Waiting int
	// Now is the time in the copy.
	Now time.Time
}

// Sim is a copy of a cluster with a scheduler. Make one with New. Its methods must be called from one goroutine at a
// time; several Sims may run at once.
type Sim struct {
	options Options
	ctx     context.Context
	stop    context.CancelFunc

	store     *store
	clock     *virtualClock
	scheduler *scheduler.Scheduler
	// informers are those that the scheduler and its plugins have asked for.
	informers informers.SharedInformerFactory
	snapshot  *internalcache.Snapshot
	pack      *plugins.Pack
	inFlight  *inFlightWork
	// handleFailure is the scheduler's own failure handler.
	handleFailure scheduler.FailureHandlerFn
	// volumeKeys has the labels that tie the volumes of a class to nodes, as those of the cluster are. It does not
	// change after the start.
	volumeKeys map[string][]string
	// requests is how many API requests are being answered.
	requests atomic.Int32

	// ready is closed when the scheduler is built.
	ready   chan struct{}
	popped  bool // by the last cycle
	cycles  int
	bound   atomic.Int32
	flushed time.Time
	// failedWaits is how many times in a row the process was not at rest before a cycle.
	failedWaits int
	// groupsTried is what happened was when groups that back off were tried again; -1 to have them tried.
	groupsTried int
	// toCreate are the pods that Run creates one by one, in this order, see Options.OneByOne.
	toCreate []replacedPod
	// progressed is the last time at which something happened that may help waiting pods.
	progressed time.Time

	mu sync.Mutex // guards what follows
	// failures has the scheduler's last reason for each pod that it could not place.
	failures map[types.UID]*fwk.Status
	events   []Event
	evicted  []*v1.Pod
	replaced map[types.UID]*v1.Pod
	moved    bool
	happened int // how many times something has happened that may help waiting pods
	serial   int
	stopping time.Time // when the last terminating pod ends
}

// The kinds of PodGroups.
const (
	GangKind       = "PodGroup.scheduling.x-k8s.io"
	NativeGangKind = "PodGroup.scheduling.k8s.io"
)

// Event is an event that the scheduler recorded in the copy. Kind has the group, as in GangKind.
type Event struct {
	Kind, Namespace, Name string
	Type, Reason, Note    string
}

// Snapshot is a cluster as it was read.
type Snapshot interface {
	Objects() []client.Object
	// When returns when it was read.
	When() time.Time
	// NotInstalled returns the resources that the cluster does not have.
	NotInstalled() []string
}

// Of copies a cluster as New does. The options' Now and NotInstalled are those of the snapshot.
func Of(ctx context.Context, s Snapshot, options Options) (*Sim, error) {
	options.Now, options.NotInstalled = s.When(), s.NotInstalled()
	return New(ctx, s.Objects(), options)
}

// New copies a cluster. The objects are of the kinds of [kinds.All], and are never modified: they may be shared with
// informers and with other Sims. Pods that are not bound wait until Run. The Sim ends with ctx, or with Close.
func New(ctx context.Context, objects []client.Object, options Options) (*Sim, error) {
	if options.Config == nil {
		var err error
		options.Config, err = configFor(objects, options.SchedulerNames)
		if err != nil {
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
		options: options, ctx: ctx, stop: stop, ready: make(chan struct{}), clock: newClock(options.Now),
		inFlight: newInFlightWork(),
		failures: map[types.UID]*fwk.Status{}, replaced: map[types.UID]*v1.Pod{}, progressed: options.Now,
		flushed: options.Now,
	}
	s.store = newStore(s.clock.countEvent, options.Seed)
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
			if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName == "" && !isEndedPod(pod) {
				objects[i] = nil
				if changed := s.options.Pods(pod); changed != nil {
					objects[i] = changed
				}
			}
		}
		objects = slices.DeleteFunc(objects, func(obj client.Object) bool { return obj == nil })
	}
	if !s.store.hasNativeGroups() {
		objects = slices.Clone(objects)
		for i, obj := range objects {
			if pod, ok := obj.(*v1.Pod); ok && pod.Spec.SchedulingGroup != nil {
				objects[i] = withoutGroup(pod)
			}
		}
	}
	if err := s.store.load(objects); err != nil {
		return err
	}
	s.volumeKeys = volumeKeysOf(list[*v1.PersistentVolume](s.store))
	config := &rest.Config{Host: "http://copy.invalid", QPS: -1, Transport: api{s}}
	requests, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: config.Transport})
	if err != nil {
		return err
	}
	direct := directClient{requests, api{s}}
	s.pack = plugins.NewPack(plugins.WithClock(s.clock), plugins.WithSource(source{s.store, s.beginRequest}))
	registry := frameworkruntime.Registry{}
	for name, factory := range s.pack.Factories() {
		registry[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			return factory(ctx, args, h)
		}
	}
	if err := registry.Merge(s.options.Registry); err != nil {
		return fmt.Errorf("a plugin is registered twice: %w", err)
	}
	if err := checkPlugins(s.options.Config, registry); err != nil {
		return err
	}
	cfg := s.options.Config.DeepCopy()
	cfg.Profiles, err = s.profiles(objects)
	if err != nil {
		return err
	}
	if !s.options.CallExtenders {
		cfg.Extenders = nil
	}
	for i := range cfg.Extenders {
		cfg.Extenders[i].BindVerb = "" // an extender is asked, but must not bind
	}
	s.informers = newInformerFactory(direct, s.store)
	options := append(
		allPlacements(cfg),
		scheduler.WithComponentConfigVersion(cfg.TypeMeta.APIVersion),
		scheduler.WithKubeConfig(config),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithPercentageOfNodesToScore(cfg.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds),
		scheduler.WithExtenders(cfg.Extenders...),
		scheduler.WithParallelism(1), // so that nodes are looked at in a fixed order
		scheduler.WithClock(queueClock{s.clock}),
	)
	s.scheduler, err = scheduler.New(s.ctx, direct, s.informers, nil, func(string) events.EventRecorderLogger { return recorder{s} }, options...)
	if err != nil {
		return fmt.Errorf("the scheduler cannot be built from its configuration: %w", err)
	}
	s.handleFailure = s.scheduler.FailureHandler
	s.scheduler.FailureHandler = s.onSchedulingFailure
	for name, f := range s.scheduler.Profiles {
		s.snapshot = f.SnapshotSharedLister().(*internalcache.Snapshot) // that of all profiles
		s.scheduler.Profiles[name] = s.wrapFramework(f)
	}
	// A closed queue does not wait for pods: Pop returns nil if there is none.
	s.scheduler.SchedulingQueue.Close()
	s.watchQueue()

	close(s.ready)
	s.endTerminatingPods(objects)
	s.informers.Start(s.ctx.Done())
	s.store.mu.Lock()
	s.store.started = true
	s.store.orderFirstListsLocked()
	s.store.mu.Unlock()
	s.store.deliverEvents()
	for _, f := range s.scheduler.Profiles {
		leader.Of(s.ctx, f).Cycle() // there is no other replica
	}
	for range 3 { // one worker's result may start another worker
		s.store.deliverEvents()
		waitUntilIdle(startRestLimit) // before the time moves, so that what begins now is timed from now
		if err := s.settle(s.ctx); err != nil {
			return err
		}
		s.clock.deferAdvance(pollInterval) // for workers that wait until everything has synced
	}
	return s.settle(s.ctx)
}

// beginRequest counts a request until done is called.
func (s *Sim) beginRequest() (done func()) {
	s.requests.Add(1)
	return func() { s.requests.Add(-1) }
}

// Now is the time in the copy.
func (s *Sim) Now() time.Time { return s.clock.Now() }

// SetPatience changes Options.Patience for the runs to come.
func (s *Sim) SetPatience(d time.Duration) { s.options.Patience = d }

// SetSeed changes Options.Seed for what is decided from now on.
func (s *Sim) SetSeed(seed int64) { s.options.Seed = seed }

// Options are those of the copy.
func (s *Sim) Options() Options { return s.options }

// List returns the objects of a kind as they are now, in the order of their keys. They must not be modified.
func List[T client.Object](s *Sim) []T { return list[T](s.store) }

// Get returns an object by its namespace (empty for a cluster-scoped one) and its name.
func Get[T client.Object](s *Sim, namespace, name string) (T, bool) {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	return get[T](s.store, key)
}

// Why returns the scheduler's last reason for not placing a pod, or empty.
func (s *Sim) Why(pod *v1.Pod) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status := s.failures[pod.UID]; status != nil {
		return status.Message()
	}
	return ""
}

// WhyWaits returns why a pod has no node, also if the scheduler has not tried it: from its last attempt, from the pod's
// condition, or from its gang.
func (s *Sim) WhyWaits(pod *v1.Pod) string {
	if reason := s.Why(pod); reason != "" {
		return reason
	}
	if _, c := podutil.GetPodCondition(&pod.Status, v1.PodScheduled); c != nil && c.Status == v1.ConditionFalse {
		return c.Message
	}
	if name := gangOf(pod); name != "" {
		gang, kind := "PodGroup "+pod.Namespace+"/"+name, GangKind
		if nativeGangOf(pod) != "" {
			kind = NativeGangKind
		}
		if events := s.Events(kind, pod.Namespace, name); len(events) > 0 {
			return gang + ": " + events[len(events)-1].Note
		}
		return gang + " is not whole"
	}
	if s.scheduler.Profiles[pod.Spec.SchedulerName] == nil {
		return fmt.Sprintf("spec.schedulerName: the configuration has no profile %q", pod.Spec.SchedulerName)
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

// noteProgress notes that something happened that may help waiting pods.
func (s *Sim) noteProgress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progressLocked()
}

func (s *Sim) progressLocked() {
	s.moved = true
	s.happened++
}

// recorder keeps the scheduler's events.
type recorder struct{ sim *Sim }

// WithLogger implements events.EventRecorderLogger.
func (r recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

// Eventf implements events.EventRecorder. Of repeated events the last one is kept.
func (r recorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	if reason == "Scheduled" || reason == "FailedScheduling" {
		return // also in the pod's condition
	}
	e := Event{Type: eventType, Reason: reason, Note: fmt.Sprintf(note, args...)}
	switch obj := regarding.(type) {
	case *v1.ObjectReference:
		e.Kind, e.Namespace, e.Name = obj.GroupVersionKind().GroupKind().String(), obj.Namespace, obj.Name
	case client.Object:
		e.Namespace, e.Name = obj.GetNamespace(), obj.GetName()
		if gvks, _, err := kinds.Scheme.ObjectKinds(obj); err == nil {
			e.Kind = gvks[0].GroupKind().String()
		}
	default:
		return
	}
	s := r.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = slices.DeleteFunc(s.events, func(old Event) bool { return old == e })
	s.events = append(s.events, e)
}

var _ framework.Framework = &profile{}
