package policies

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/leader"
	"zonewise.dev/plugins/zonespread/policy"
)

const (
	// gather is how long the worker waits for more of the same before it looks at a policy again.
	gather = 50 * time.Millisecond
	// startBound is how long AwaitStart waits at most for the policies that exist at the start.
	startBound = 5 * time.Second
)

// Handle is the part of the framework's handle that the package needs.
type Handle interface {
	ProfileName() string
	SharedInformerFactory() informers.SharedInformerFactory
	ClientSet() clientset.Interface
	KubeConfig() *rest.Config
	Activate(logger klog.Logger, pods map[string]*v1.Pod)
	EventRecorder() events.EventRecorderLogger // nil without an API server
}

// Policies are the ZoneSpreadPolicies of one scheduler. Make one with New.
type Policies struct {
	clock     clock.WithTicker
	source    Source
	isLeading func(context.Context, Handle) <-chan struct{}

	// active is what applies now, by namespace. It is replaced, never changed.
	active atomic.Pointer[map[string]*namespace]

	queue       workqueue.TypedDelayingInterface[types.UID] // policies to look at; one timer each
	statusQueue workqueue.TypedDelayingInterface[types.UID] // policies whose status may be out of date
	leading     atomic.Bool
	opened      atomic.Bool // AwaitStart need not wait any more
	started     time.Time

	cluster *cluster
	watch   Watch // set by the first Join

	mu       sync.Mutex // guards everything below, the entries and what they point to
	handle   Handle     // of the profile that joined first
	profiles map[string]bool
	entries  map[types.UID]*entry
	served   bool      // the CustomResourceDefinition is there
	orphans  []*v1.Pod // waiting pods of deleted policies, to be woken
}

// entry is what is kept about one policy object.
type entry struct {
	obj     *v1alpha1.ZoneSpreadPolicy
	policy  *policy.Policy // nil while the spec can not be applied
	errs    field.ErrorList
	machine *policy.Machine // nil until the spec could be applied once
	next    policy.Deadline // when the machine's answers change by themselves; zero when never

	pods     members
	owners   []policy.Owner // of the namespace, as far as they concern the policy
	unowned  []reference    // what controls pods without being, or leading to, a workload that is known
	fresh    bool           // owners and unowned are up to date
	replicas int64          // as the waiting pods were last judged by, -1 before that
	wake     bool           // the waiting pods are to be activated
	refused  map[types.UID]bool
}

// Option changes how Policies are built.
type Option func(*Policies)

// WithSource takes policies from source instead of from the API server of the handle.
func WithSource(source Source) Option { return func(s *Policies) { s.source = source } }

// WithClock tells the time by c instead of the system's clock.
func WithClock(c clock.WithTicker) Option { return func(s *Policies) { s.clock = c } }

// WithLeading asks f, instead of package leader, for the channel that is closed when this process may write.
func WithLeading(f func(context.Context, Handle) <-chan struct{}) Option {
	return func(s *Policies) { s.isLeading = f }
}

// New returns the policies of one scheduler. Nothing runs before Join.
func New(options ...Option) *Policies {
	s := &Policies{
		clock:     clock.RealClock{},
		isLeading: func(ctx context.Context, h Handle) <-chan struct{} { return leader.Of(ctx, h).Leading() },
		profiles:  map[string]bool{},
		entries:   map[types.UID]*entry{},
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// Join adds a profile. The first one starts the watches and workers, which run until its ctx ends. It must be called
// before the handle's informers are started. It makes no request: an error is a mistake of the program.
func (s *Policies) Join(ctx context.Context, h Handle) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.profiles[h.ProfileName()] = true
	if s.handle != nil {
		return nil
	}
	if s.source == nil && h.KubeConfig() == nil {
		return nil // no API server, so no policies
	}
	config := workqueue.TypedDelayingQueueConfig[types.UID]{Clock: s.clock}
	s.queue = workqueue.NewTypedDelayingQueueWithConfig(config)
	s.statusQueue = workqueue.NewTypedDelayingQueueWithConfig(config)
	s.handle = h
	s.started = s.clock.Now()
	s.cluster = newCluster(h.SharedInformerFactory(), h.ClientSet())
	if err := s.watchCluster(ctx, s.cluster); err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	if err := s.watchPoliciesLocked(ctx, h.KubeConfig()); err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	exportMetrics(ctx, s)
	go s.work(ctx)
	go func() {
		select {
		case <-s.isLeading(ctx, h):
			s.lead(ctx)
		case <-ctx.Done():
		}
		<-ctx.Done()
		s.queue.ShutDown()
		s.statusQueue.ShutDown()
	}()
	return nil
}

// AwaitStart waits, with a bound, until the policies that existed at the start of the process are known, so that the first
// pods after a restart are not placed without them. Later calls cost an atomic load.
func (s *Policies) AwaitStart(ctx context.Context) {
	if s.opened.Load() {
		return
	}
	s.mu.Lock()
	watch := s.watch
	s.mu.Unlock()
	ticker := s.clock.NewTicker(gather)
	defer ticker.Stop()
	for watch != nil && !watch.Settled() && s.clock.Since(s.started) < startBound {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
	s.opened.Store(true)
}

// Selects tells whether a policy applies to the pod.
func (s *Policies) Selects(pod *v1.Pod) bool {
	for range s.each(pod) {
		return true
	}
	return false
}

// CountsFor tells whether a hard policy applies to the pod and counts the other one for it, so that the other one's coming
// and going may change where the pod may go.
func (s *Policies) CountsFor(pod, other *v1.Pod) bool {
	if pod.Namespace != other.Namespace {
		return false
	}
	for a := range s.each(pod) {
		if a.policy.Hard() && a.policy.SelectorFor(pod.Labels).Matches(labels.Set(other.Labels)) {
			return true
		}
	}
	return false
}

// SelectsHard tells whether a hard policy applies to the pod.
func (s *Policies) SelectsHard(pod *v1.Pod) bool {
	for a := range s.each(pod) {
		if a.policy.Hard() {
			return true
		}
	}
	return false
}
