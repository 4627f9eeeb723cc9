package serve

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/agenda"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/feature"
	"zonewise.dev/internal/informer"
	"zonewise.dev/internal/leader"
	"zonewise.dev/internal/lease"
	"zonewise.dev/internal/published"
	"zonewise.dev/plugins/zonespread/policy"
)

const (
	// gatherInterval is how long the worker waits for more changes.
	gatherInterval = 50 * time.Millisecond
	// startLimit is the longest that AwaitStart waits.
	startLimit = 5 * time.Second
)

// Handle is the part of the framework's handle that the package needs.
type Handle interface {
	fwk.PodActivator
	SharedInformerFactory() informers.SharedInformerFactory
	ClientSet() clientset.Interface
	KubeConfig() *rest.Config
	EventRecorder() events.EventRecorderLogger // nil without an API server
}

// Policies are the ZoneSpreadPolicies of one scheduler. Make one with New.
type Policies struct {
	clock               clock.WithTicker
	source              crd.Source
	leads               func(context.Context, Handle) <-chan struct{}
	comparisonOperators bool
	lease               func() string // under which the scheduler leads, as namespace/name; empty without leader election
	podBackoff          func() (initial, longest time.Duration)

	active active
	opened atomic.Bool // AwaitStart need not wait any more
	agenda *agenda.Agenda[task]
	wakes  *agenda.Agenda[struct{}] // apart from the agenda, so that no pod waits for a look at all nodes or pods

	// Set by the first Join, and not changed then.
	handle  Handle
	cluster *cluster
	kind    crd.Kind
	writer  *crd.Writer[*v1alpha1.ZoneSpreadPolicy]
	leases  *lease.Observer

	mu      sync.Mutex // guards everything below, and what it points to
	joined  bool
	served  bool // the CustomResourceDefinition is there
	leading bool
	entries map[types.UID]*entry
	waiting map[types.UID]*waiter
	// reported is when the leader began its last report.
	reported time.Time
}

// entry is the state of one policy object.
type entry struct {
	object   crd.Object[*v1alpha1.ZoneSpreadPolicy, *policy.Policy]
	applied  *Applied      // nil if the policy does not apply
	zones    *policy.Zones // nil until the spec could be applied once
	observed bool          // zones has seen the nodes since the latest spec
	// matching are the pods that the policy selects; nil unless their number is R.
	matching *matching
	// refused has the last attempt of each waiting pod that the policy refused a node; changes is how often something
	// happened that may help some of them.
	refused map[types.UID]*Attempt
	changes uint64
	// counted is what the last recount found; nil before the first one of the latest spec.
	counted *policy.Observation
	stale   bool // counted, or the status, may be
}

// Option changes how Policies are built.
type Option func(*Policies)

// WithSource takes policies from source instead of from the API server of the handle.
func WithSource(source crd.Source) Option { return func(s *Policies) { s.source = source } }

// WithClock makes the policies use c instead of the system's clock.
func WithClock(c clock.WithTicker) Option { return func(s *Policies) { s.clock = c } }

// WithPodBackoff has pods tried again after this backoff instead of that which kube-scheduler has published.
func WithPodBackoff(initial, longest time.Duration) Option {
	return func(s *Policies) {
		s.podBackoff = func() (time.Duration, time.Duration) { return initial, longest }
	}
}

// New returns the policies of one scheduler. It starts nothing; Join does.
func New(options ...Option) *Policies {
	s := &Policies{
		clock:               clock.RealClock{},
		leads:               func(ctx context.Context, h Handle) <-chan struct{} { return leader.Of(ctx, h).Leading() },
		comparisonOperators: feature.TolerationOperators(),
		podBackoff:          sync.OnceValues(published.PodBackoff),
		active:              active{namespaces: map[string]*namespace{}},
		entries:             map[types.UID]*entry{},
		waiting:             map[types.UID]*waiter{},
	}
	for _, o := range options {
		o(s)
	}
	s.agenda, s.wakes = agenda.New[task](s.clock), agenda.New[struct{}](s.clock)
	return s
}

// Join starts the watches and workers, which run until ctx ends, with the handle of the first profile; further calls do
// nothing. It must be called before the handle's informers are started. It makes no request: an error is a programming
// error.
func (s *Policies) Join(ctx context.Context, h Handle) error {
	s.mu.Lock()
	if s.joined || s.source == nil && h.KubeConfig() == nil {
		s.mu.Unlock()
		return nil // without an API server there are no policies
	}
	s.joined = true
	s.mu.Unlock()
	if s.source == nil {
		server, err := crd.Connect(h.KubeConfig())
		if err != nil {
			return fmt.Errorf("policies: %w", err)
		}
		s.source = server
	}
	s.lease = leader.Of(ctx, h).Lease
	s.handle, s.leases = h, lease.NewObserver(h.ClientSet().CoordinationV1(), s.clock)
	s.writer = crd.NewWriter(s.source, "ZoneSpreadPolicy", s.desiredStatus,
		func(older, newer *v1alpha1.ZoneSpreadPolicy) {
			s.announce(klog.FromContext(ctx), older, newer)
		}, crd.WithClock(s.clock))
	var err error
	s.cluster, err = s.watchCluster(ctx, h.SharedInformerFactory(), h.ClientSet())
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	s.kind, err = crd.Watch(ctx, s.source, informer.Latest(s.policySeen, s.policyGone), s.servedChanged)
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	exportMetrics(ctx, s)
	go s.agenda.Run(ctx, 1, s.do)
	go s.wakes.Run(ctx, 1, func(struct{}) { s.activate(ctx) })
	go func() {
		if toolscache.WaitFor(ctx, "", s.cluster.podsAndNodes...) {
			s.podsAndNodesSynced()
		}
	}()
	go func() {
		select {
		case <-s.leads(ctx, h):
			s.lead(ctx)
		case <-ctx.Done():
			s.writer.Stop()
		}
	}()
	return nil
}

// lead starts what only the leader does, until ctx ends.
func (s *Policies) lead(ctx context.Context) {
	s.mu.Lock()
	s.leading = true
	for _, e := range s.entries {
		e.stale = true
	}
	s.schedule(task{kind: reportAll}, 0)
	s.mu.Unlock()
	s.writer.Run(ctx)
}

// AwaitStart waits until the existing policies, nodes, pods and workloads are known, for a limited time from the first
// call. So the first pods after a start or a failover are not placed without policies. Later calls cost an atomic load.
// It uses the system's clock, since it waits for input.
func (s *Policies) AwaitStart(ctx context.Context) {
	if s.opened.Load() {
		return
	}
	// An error means that the time is over or that the scheduler stops.
	_ = wait.PollUntilContextTimeout(ctx, gatherInterval, startLimit, true, func(context.Context) (bool, error) {
		return s.started(), nil
	})
	s.opened.Store(true)
}

func (s *Policies) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.joined {
		return true
	}
	for _, e := range s.entries {
		known := e.observed && (e.matching == nil || e.matching.filled)
		if s.served && e.object.Valid() && !known {
			return false
		}
	}
	return s.kind.Settled() && (len(s.entries) == 0 || s.cluster.workloadsSynced())
}

// Idle reports whether there is nothing to do until an event comes or the clock moves.
func (s *Policies) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.joined {
		return true
	}
	return s.agenda.Idle() && s.wakes.Idle() && (!s.leading || s.writer.Idle())
}
