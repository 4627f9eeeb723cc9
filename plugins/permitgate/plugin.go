package permitgate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/util/workqueue"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/leader"
	"zonewise.dev/internal/metrics"
	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/plugins/permitgate/gang"
)

// Name is the name of the plugin in the registry and in KubeSchedulerConfiguration.
const Name = "PermitGate"

// roomPause is the least time between a gang's rollback and its next attempt when room was made in
// between: short enough that a gang is bound within a second of the room being there.
const roomPause = 200 * time.Millisecond

// Shared is the state that all profiles of one scheduler share: a gang may have members in several
// profiles. Its methods may be called from several goroutines.
type Shared struct {
	source PodGroupSource
	queue  workqueue.TypedDelayingInterface[types.NamespacedName] // gangs for the worker to look at
	// statusQueue has the gangs whose PodGroup's status is to be looked at.
	statusQueue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// nominations has the members that may be nominated to a node that is not meant for them any more.
	nominations workqueue.TypedRateLimitingInterface[member]
	rehearsals  workqueue.TypedRateLimitingInterface[rehearsal]
	recoveries  workqueue.TypedRateLimitingInterface[types.NamespacedName]

	// evictions has the gangs whose victims are to be evicted.
	evictions workqueue.TypedRateLimitingInterface[types.NamespacedName]
	budgets   policylisters.PodDisruptionBudgetLister // set once, before anything is scheduled

	// starves is how many gangs starve, ahead what is known for them; both for scheduling cycles, which need no lock for a look.
	starves atomic.Int32
	ahead   ahead
	// probing is true while a scheduling cycle has the filters tried for a member that is not its own pod. Only they use it.
	probing bool

	holdsSource func() Holds        // nil without an account of holds
	policies    func() ZonePolicies // nil without zone policies

	mu       sync.Mutex // guards everything below, the gangs included; never held while the scheduling queue, a waiting pod or the API server is called
	args     *PermitGateArgs
	profiles map[string]fwk.Handle
	gangs    map[types.NamespacedName]*entry
	awaiting map[types.UID]map[*entry]struct{} // the gangs that wait for a pod to leave its node
	barred   map[types.UID]time.Time           // until when pods are not to be evicted that did not go
	starving map[types.NamespacedName]*entry   // the gangs that take what becomes free
	heldLess bool                              // less is held than in the last scheduling cycle
	holds    Holds                             // nil until it is known
	freed    bool                              // less is held than the others have been told
	warned   bool                              // that there is no account of holds
	groups   PodGroupWatch                     // nil without an API server
	// namespaces is the scheduler's own lister; set once.
	namespaces corelisters.NamespaceLister
	admission  *admissionWatch // nil until this process leads, and without bindRehearsal Auto
	// historySynced tells whether the pods of all phases have been read; nil until this process leads.
	historySynced func() bool
	stopped       bool            // the scheduler's context has ended
	leading       <-chan struct{} // closed once this process may write
}

// entry is a gang and what the adapter keeps of it.
type entry struct {
	key  types.NamespacedName
	gang *gang.Gang
	pods map[types.UID]*v1.Pod // the live members as the scheduler's informer last showed them

	group *v1alpha1.PodGroup // as last seen; nil when it does not exist
	facts map[types.UID]fact // the pods of all phases, on the leader
	done  map[types.UID]bool // those of them that the gang counts as done

	nodes      map[types.UID]string // where Permit last saw the members go
	held       *held                // what is held for the plan; nil when nothing is
	collecting collecting
	preempting *preemption // nil while the gang waits for nobody to end
	// preemptAfter is when the gang may preempt again after a preemption that came to nothing.
	preemptAfter time.Time
	failed       failedPreemption
	exclusions   exclusions // what the next plan has to do without

	signatures map[types.UID]signed

	needs *needs // of the pods; nil when it is to be found out. It does not change

	barrier    map[types.UID]chan<- verdict // the members at the barrier
	departures int                          // the gang's, as of the last answer to them

	seen  seen
	told  told
	mixed mixed
}

// Option changes how a Shared is built.
type Option func(*Shared)

// WithPodGroups takes PodGroups from source instead of from the API server of the handle.
func WithPodGroups(source PodGroupSource) Option {
	return func(s *Shared) { s.source = source }
}

// NewShared returns the state for one scheduler.
func NewShared(options ...Option) *Shared {
	s := &Shared{
		queue:       workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		statusQueue: newStatusQueue(),
		nominations: newNominationQueue(),
		rehearsals:  newRehearsalQueue(),
		recoveries:  newRecoveryQueue(),
		evictions:   newEvictionQueue(),
		profiles:    map[string]fwk.Handle{},
		gangs:       map[types.NamespacedName]*entry{},
		awaiting:    map[types.UID]map[*entry]struct{}{},
		starving:    map[types.NamespacedName]*entry{},
		barred:      map[types.UID]time.Time{},
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// New is the framework's factory of the plugin for one profile. A nil object means the default
// arguments. An error names the field of the arguments that is wrong.
//
// The first call starts the watches and the worker, which run until its ctx ends.
func (s *Shared) New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	a, err := decodeArgs(obj)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.args != nil && *s.args != a {
		return nil, fmt.Errorf("plugin %s: the args of profile %q differ from those of another profile: gangs are shared by all profiles", Name, h.ProfileName())
	}
	first := s.args == nil
	s.args = &a
	s.profiles[h.ProfileName()] = h
	if first {
		metrics.MustRegister(gangsByPhase, waitingMembers, rollbacks, rehearsals, recoveryEvictions, timeToWhole, planDuration, preemptions, preemptedPods)
		collected.Export(ctx, s)
		if err := s.startLocked(ctx, h); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", Name, err)
		}
	}
	return &PermitGate{shared: s, handle: h, comparisonOperators: comparisonOperators()}, nil
}

// startLocked starts what runs for all profiles until ctx ends.
func (s *Shared) startLocked(ctx context.Context, h fwk.Handle) error {
	s.leading = leader.Of(ctx, h).Leading()
	s.namespaces = h.SharedInformerFactory().Core().V1().Namespaces().Lister()
	if err := s.watchCluster(h.SharedInformerFactory()); err != nil {
		return err
	}
	if err := s.watchVictims(h.SharedInformerFactory()); err != nil {
		return err
	}
	if err := s.watchPodGroupsLocked(ctx, h.KubeConfig()); err != nil {
		return err
	}
	go s.work(ctx)
	go func() {
		select {
		case <-s.leading:
			s.lead(ctx, h.ClientSet())
		case <-ctx.Done():
		}
		<-ctx.Done()
		s.stop()
	}()
	return nil
}

// New is the factory for a scheduler that does not wire the plugins itself: all profiles of one
// scheduler get plugins that share their state.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	shared := perscheduler.Get(ctx, h, Name, func() *Shared { return NewShared() })
	return shared.New(ctx, obj, h)
}

// PermitGate is the plugin of one profile.
type PermitGate struct {
	shared *Shared
	handle fwk.Handle

	// comparisonOperators tells whether tolerations may compare numbers.
	comparisonOperators bool
}

var (
	_ fwk.PreEnqueuePlugin  = &PermitGate{}
	_ fwk.PreFilterPlugin   = &PermitGate{}
	_ fwk.FilterPlugin      = &PermitGate{}
	_ fwk.PostFilterPlugin  = &PermitGate{}
	_ fwk.ReservePlugin     = &PermitGate{}
	_ fwk.PermitPlugin      = &PermitGate{}
	_ fwk.PreBindPlugin     = &PermitGate{}
	_ fwk.PostBindPlugin    = &PermitGate{}
	_ fwk.EnqueueExtensions = &PermitGate{}
	_ fwk.SignPlugin        = &PermitGate{}
)

// Name returns the plugin's name.
func (*PermitGate) Name() string { return Name }

// SignPod refuses members, whose fate depends on other pods, and adds nothing to the signature of the
// pods that the plugin lets pass.
func (*PermitGate) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, ok := gangOf(pod); ok {
		return nil, fwk.NewStatus(fwk.Unschedulable, "members of a gang are not batched")
	}
	return nil, nil
}

// gangOf returns the key of the gang that a pod belongs to, and false for a pod that is in none: one
// without the label, and one that belongs to a native pod group, whose scheduling is upstream's.
func gangOf(pod *v1.Pod) (types.NamespacedName, bool) {
	name := pod.Labels[v1alpha1.PodGroupLabel]
	if name == "" || pod.Spec.SchedulingGroup != nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: name}, true
}

// look runs f on the gang if it exists. f must not call anything that blocks or takes another lock.
func (s *Shared) look(key types.NamespacedName, f func(e *entry, now time.Time)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.gangs[key]
	if ok {
		f(e, time.Now())
		s.settledLocked(e)
	}
	return ok
}

// change runs f on the gang, which is made if it does not exist, and has the worker look at it.
func (s *Shared) change(key types.NamespacedName, f func(e *entry, now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.gangs[key]
	if !ok {
		e = &entry{
			key: key,
			gang: gang.New(gang.Config{
				Planned:         true,
				Timeout:         s.args.ScheduleTimeout.Duration,
				PrepareTimeout:  s.args.PrepareTimeout.Duration,
				RecoveryTimeout: s.args.RecoveryTimeout.Duration,
				InitialBackoff:  s.args.InitialBackoff.Duration,
				MaxBackoff:      s.args.MaxBackoff.Duration,
				RoomPause:       roomPause,
				Jitter:          rand.Float64,
			}),
			pods:  map[types.UID]*v1.Pod{},
			facts: map[types.UID]fact{},
			done:  map[types.UID]bool{},

			nodes:   map[types.UID]string{},
			barrier: map[types.UID]chan<- verdict{},
		}
		s.gangs[key] = e
	}
	f(e, time.Now())
	s.settledLocked(e)
	s.queue.Add(key)
}

// settledLocked tells the members at the barrier what the gang has decided, brings the metrics in line with
// the gang, and forgets a gang of which nothing is left.
func (s *Shared) settledLocked(e *entry) {
	e.answerBarrier()
	s.syncHoldsLocked(e)
	s.starvesLocked(e)
	if e.gang.Empty() && len(e.facts) == 0 {
		s.setPreemptingLocked(e, nil)
		delete(s.gangs, e.key)
		e.seen.leave()
		return
	}
	if !s.stopped {
		e.seen.update(e.gang)
	}
}

// lead starts what only the leader does.
func (s *Shared) lead(ctx context.Context, client clientset.Interface) {
	s.watchHistory(ctx, client)
	s.mu.Lock()
	patcher, canWrite := s.groups.(StatusPatcher)
	reader, canRead := s.groups.(PodGroupReader)
	manage := s.args.ManagePodGroupStatus
	s.mu.Unlock()
	if canWrite && manage {
		go s.writeStatuses(ctx, patcher)
	}
	go s.takeNominationsBack(ctx, client)
	go s.evictVictims(ctx, client)
	s.startRehearsals(ctx, client)
	if canRead {
		go s.recover(ctx, client, reader)
	}
	s.inheritNominations()
	s.enqueueAll() // what could not be said before
}

// stop ends the workers and takes the gangs out of the process's metrics.
func (s *Shared) stop() {
	s.queue.ShutDown()
	s.statusQueue.ShutDown()
	s.nominations.ShutDown()
	s.rehearsals.ShutDown()
	s.recoveries.ShutDown()
	s.evictions.ShutDown()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, e := range s.gangs {
		e.seen.leave()
	}
}

func (s *Shared) enqueueAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.gangs {
		s.queue.Add(key)
		s.statusQueue.Add(key)
	}
}
