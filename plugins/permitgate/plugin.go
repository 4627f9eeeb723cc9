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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/feature"
	"zonewise.dev/internal/informer"
	"zonewise.dev/internal/leader"
	"zonewise.dev/internal/metrics"
	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/preempt"
	"zonewise.dev/plugins/permitgate/rehearse"
	"zonewise.dev/plugins/permitgate/serve"
)

// syncLimit is the longest that the first scheduling cycle waits for the plugin's informers.
const syncLimit = 10 * time.Second

// Shared is the state that all profiles of one scheduler share: a gang may have members in several
// profiles. Its methods may be called from several goroutines.
type Shared struct {
	clock  clock.WithTicker
	source crd.Source
	holds  Holds // nil without

	gangs       *gangs
	nominations *nominations
	profiles    *profiles
	server      *serve.Server
	rehearser   *rehearse.Rehearser
	preemptor   *preempt.Preemptor
	leader      *leader.Leader
	cycles      atomic.Int64 // scheduling cycles that have begun, in which PreFilter was called
	takeLead    func()       // starts what only the leader does, once; it has begun when this returns

	mu     sync.Mutex // guards what follows
	args   *PermitGateArgs
	synced []toolscache.InformerSynced
	groups crd.Kind // nil without PodGroups
}

// Option changes how a Shared is built.
type Option func(*Shared)

// WithClock makes the plugin use another clock than the system's.
func WithClock(c clock.WithTicker) Option { return func(s *Shared) { s.clock = c } }

// WithSource takes PodGroups from source instead of from the API server of the handle.
func WithSource(source crd.Source) Option { return func(s *Shared) { s.source = source } }

// WithHolds makes proposals leave out room that is held for others.
func WithHolds(holds Holds) Option { return func(s *Shared) { s.holds = holds } }

// NewShared returns the state for one scheduler. It starts nothing.
func NewShared(options ...Option) *Shared {
	s := &Shared{clock: clock.RealClock{}, nominations: newNominations(), profiles: &profiles{}}
	for _, o := range options {
		o(s)
	}
	s.gangs = newGangs(s.clock)
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
		return nil, fmt.Errorf("plugin %s: the args of profile %q differ from those of another profile: all profiles share the gangs", Name, h.ProfileName())
	}
	first := s.args == nil
	s.args = &a
	s.profiles.add(h)
	if first {
		if err := s.startLocked(ctx, h); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", Name, err)
		}
	}
	return s.newPlugin(h), nil
}

// newPlugin makes the plugin of one profile.
func (s *Shared) newPlugin(h fwk.Handle) *PermitGate {
	runner := newFilterRunner(h)
	p := &PermitGate{
		handle: h, shared: s, gangs: s.gangs,
		victims: &victimSearch{
			handle: h, gangs: s.gangs, runner: runner, preemptor: s.preemptor, delay: s.args.PreemptionDelay.Duration, enabled: s.args.GangPreemption && runner.run != nil,
			budgets: h.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister(), nodes: h.SharedInformerFactory().Core().V1().Nodes().Lister(),
		},
		proposer: &proposer{
			handle: h, gangs: s.gangs, nominations: s.nominations, claims: newClaims(h),
			runner: runner, counted: newCountedResources(runner), operators: feature.TolerationOperators(), holds: s.holds,
		},
	}
	p.keeper = &keeper{
		keeping: s.gangs.keeping, proposer: p.proposer, after: s.args.StarvationAfter.Duration,
		event: func(ctx context.Context, id gangID, reason, note string) {
			s.server.SendEvent(ctx, id, nil, reason, note)
		},
	}
	p.victims.keeper = p.keeper
	return p
}

// startLocked starts what runs for all profiles until ctx ends.
func (s *Shared) startLocked(ctx context.Context, h fwk.Handle) error {
	metrics.MustRegister(rollbacks, proposalDuration, timeToWhole)
	collected.Export(ctx, s)
	s.gangs.config = gang.Config{
		Timeout:         s.args.ScheduleTimeout.Duration,
		PrepareTimeout:  s.args.PrepareTimeout.Duration,
		RecoveryTimeout: s.args.RecoveryTimeout.Duration,
		InitialBackoff:  s.args.InitialBackoff.Duration,
		MaxBackoff:      s.args.MaxBackoff.Duration,
		Rehearse:        s.args.BindRehearsal == rehearse.Auto,
		Cycles:          s.cycles.Load,
		Jitter:          rand.Float64,
	}
	s.leader = leader.Of(ctx, h)
	if err := s.connectLocked(h); err != nil {
		return err
	}
	factory := h.SharedInformerFactory()
	s.rehearser = rehearse.New(s.clock, s.gangs)
	s.server = serve.New(serve.Config{
		Clock: s.clock, Source: s.source, Handle: s.profiles.orAny, Gangs: s.gangs, Pods: factory.Core().V1().Pods().Lister(), Synced: s.hasSynced,
		ManageStatus: s.args.ManagePodGroupStatus, RecoveryTimeout: s.args.RecoveryTimeout.Duration,
	})
	s.preemptor = s.newPreemptorLocked(h)
	s.gangs.abandon, s.gangs.missing = s.preemptor.Abandon, s.missing
	f := &eventHandlers{s, h, newClaims(h), klog.FromContext(ctx)}
	if s.args.NativeGroups == native.Guard && feature.Enabled(native.Feature, false) {
		if err := s.watchNativeLocked(factory, f); err != nil {
			return err
		}
	}
	synced, err := f.watch(factory)
	if err != nil {
		return err
	}
	s.synced = append(s.synced, synced...)
	if s.source != nil {
		groups, err := crd.Watch(ctx, s.source, informer.Latest(
			func(group *v1alpha1.PodGroup) { f.groupSeen(podgroup.Read(group)) },
			func(group *v1alpha1.PodGroup) { s.gangs.groupGone(podgroup.Read(group)) },
		), func(bool) { s.gangs.actOnAll() })
		if err != nil {
			return fmt.Errorf("watching PodGroups: %w", err)
		}
		s.groups = groups
	}
	w := &worker{s}
	go s.gangs.agenda.Run(ctx, 1, func(id gangID) { w.act(ctx, id) })
	s.takeLead = sync.OnceFunc(func() { s.lead(ctx, h) })
	go func() {
		select {
		case <-s.leader.Leading():
			s.takeLead()
		case <-ctx.Done():
		}
	}()
	return nil
}

// watchNativeLocked watches the groups of scheduling.k8s.io.
func (s *Shared) watchNativeLocked(factory informers.SharedInformerFactory, f *eventHandlers) error {
	hierarchies := feature.Enabled(native.CompositeFeature, false)
	groups, synced, err := native.Watch(factory, hierarchies, f.groupSeen, s.gangs.groupGone)
	if err != nil {
		return err
	}
	s.gangs.natives = &nativeObjects{groups: groups, pods: factory.Core().V1().Pods().Lister()}
	s.synced = append(s.synced, synced)
	if hierarchies {
		s.gangs.natives.composites, synced, err = native.WatchComposites(factory, s.gangs.setComposite, s.gangs.dropComposite)
		s.synced = append(s.synced, synced)
	}
	return err
}

func (s *Shared) newPreemptorLocked(h fwk.Handle) *preempt.Preemptor {
	pods := h.SharedInformerFactory().Core().V1().Pods().Lister()
	config := preempt.Config{
		Clock: s.clock, Client: h.ClientSet(), Handles: s.profiles.all, Plugin: Name,
		Gangs: s.gangs, Event: s.server.SendEvent,
		Exists: func(pod *v1.Pod) bool {
			found, err := pods.Pods(pod.Namespace).Get(pod.Name)
			return err == nil && found.UID == pod.UID
		},
	}
	if rest := h.KubeConfig(); rest != nil {
		config.QPS = rest.QPS
	}
	return preempt.New(config)
}

// connectLocked finds the source of PodGroups. Without an API server there is none.
func (s *Shared) connectLocked(h fwk.Handle) error {
	if s.source != nil || h.KubeConfig() == nil {
		return nil
	}
	source, err := crd.Connect(h.KubeConfig())
	if err != nil {
		return err
	}
	s.source = source
	return nil
}

// lead starts what only the leader does.
func (s *Shared) lead(ctx context.Context, h fwk.Handle) {
	s.server.Lead(ctx, h)
	s.rehearser.Lead(ctx, h.ClientSet())
	go s.preemptor.Run(ctx)
	s.gangs.actOnAll() // what could not be done or said before
}

// awaitSync waits, in the first scheduling cycle, until the plugin has seen the objects that existed before: the
// scheduler may have seen them already.
func (s *Shared) awaitSync(ctx context.Context) {
	// Whether it has synced in time does not matter: otherwise members wait a little longer.
	_ = wait.PollUntilContextTimeout(ctx, time.Millisecond, syncLimit, true, func(context.Context) (bool, error) { return s.hasSynced(), nil })
}

func (s *Shared) hasSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, synced := range s.synced {
		if !synced() {
			return false
		}
	}
	return s.groups == nil || s.groups.Settled()
}

// missing says why a PodGroup is not known.
func (s *Shared) missing() (gang.Reason, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.groups == nil || !s.groups.Available():
		return serve.ReasonNoCRD, "the CustomResourceDefinition podgroups." + v1alpha1.SchemeGroupVersion.Group + " is not installed; the pod waits until it is"
	case !s.groups.HasSynced():
		return gang.ReasonNotFound, "PodGroups have not been read yet"
	}
	return gang.ReasonNotFound, "the PodGroup does not exist in the pod's namespace"
}

// Idle reports whether the plugin's workers have nothing to do until an event comes or the clock moves.
func (s *Shared) Idle() bool {
	s.mu.Lock()
	started := s.server != nil
	s.mu.Unlock()
	return s.gangs.agenda.Idle() && (!started || s.server.Idle() && s.rehearser.Idle() && s.preemptor.Idle())
}

// New is the factory for a scheduler that does not use the pack: the plugins of all profiles of one scheduler
// share their state.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	shared := perscheduler.Get(ctx, h, Name, func() *Shared { return NewShared() })
	return shared.New(ctx, obj, h)
}

// PermitGate is the plugin of one profile.
type PermitGate struct {
	handle   fwk.Handle
	shared   *Shared
	gangs    *gangs
	proposer *proposer
	victims  *victimSearch
	keeper   *keeper
	begun    sync.Once // in the first cycle

	keptOff atomic.Pointer[nodeClaim] // what has kept the pod in its cycle off a node, nil if nothing has
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
