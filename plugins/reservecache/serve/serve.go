package serve

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/agenda"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/informer"
	"zonewise.dev/internal/leader"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

const (
	// startTimeout is how long AwaitStart waits at most, from its first call, for the reservations that exist at the
	// start.
	startTimeout = 5 * time.Second
	// startPollInterval is how often it looks.
	startPollInterval = 10 * time.Millisecond
)

// Handle is the part of the framework's handle that the package needs.
type Handle interface {
	SharedInformerFactory() informers.SharedInformerFactory
	EventRecorder() events.EventRecorderLogger
}

// Waker wakes pods that slots have kept out. It is called by one goroutine at a time.
type Waker interface {
	// Empty reports whether no pod waits.
	Empty() bool
	// Choose chooses pods to wake when something else may be held than before on some nodes: those that fit there now,
	// and with all each owner.
	Choose(f *floor.Floor, changed []floor.At, claims *Claims, all bool, now time.Time) Woken
	// Activate wakes pods. It takes the lock of the scheduling queue.
	Activate(logger klog.Logger, pods map[string]*v1.Pod)
}

// Woken are pods to wake, by key, and when to choose again in any case; zero for never.
type Woken struct {
	Pods map[string]*v1.Pod
	Next time.Time
}

// CycleFloor is the floor of the scheduling cycles.
type CycleFloor interface {
	// Read calls read with it, and with what it was last settled for.
	Read(read func(f *floor.Floor, settled Settled))
}

// Config is what a Server works with.
type Config struct {
	Clock  clock.WithTicker
	Source crd.Source
	Leader *leader.Leader
	// Lease returns that of the scheduler, as namespace/name; empty if it has none.
	Lease func() string
	// Yields reports whether the scheduler of the first Lease leaves to that of the second what names it. It may take a
	// request.
	Yields func(ctx context.Context, own, named string) bool
	Ledger *ledger.Ledger
	Floor  CycleFloor
	// Fraction bounds what is held in a zone, see [floor.New].
	Fraction float64
	// Nominated returns what the pods ask for that are nominated to a node.
	Nominated func(node string) ledger.Resources
	Waker     Waker
	Handle    Handle
}

// Server is the ZoneReservations of one scheduler. Make one with New.
type Server struct {
	Config

	reservations, classes crd.Kind
	writer                *crd.Writer[*v1alpha1.ZoneReservation]
	// awaited is when AwaitStart was first called.
	awaited func() time.Time

	// claims is what applies now; it is replaced, never changed.
	claims atomic.Pointer[Claims]
	// placing is set once it is known which reservations there are in a process that leads, and stays so.
	placing atomic.Bool
	passes  *agenda.Agenda[struct{}]  // when the worker's next pass is due
	rested  atomic.Pointer[time.Time] // until when the worker rests after its last one

	passing sync.Mutex // serializes passes, is taken before mu, and guards the fields up to mu
	// published is what was last published of the claims, and of which claims.
	published published
	// floorVersion is that of the cycles' floor at the last look at it.
	floorVersion uint64
	snapshot     *ledger.Snapshot
	// nextSurvey is when the owners may be looked at again.
	nextSurvey time.Time

	mu      sync.Mutex // guards everything below, and the entries
	entries map[types.UID]*entry
	// needsApply is set when what applies is to be worked out again.
	needsApply bool
	// globalDefaults are the values of the priority classes that are the default of the cluster, by name.
	globalDefaults map[string]int32
	// held is what is held unused in each zone, for metrics.
	held map[string]ledger.Resources
}

// New returns a server. Nothing runs before Start.
func New(c *Config) *Server {
	s := &Server{
		Config: *c, awaited: sync.OnceValue(c.Clock.Now), passes: agenda.New[struct{}](c.Clock), snapshot: ledger.NewSnapshot(),
		entries: map[types.UID]*entry{}, globalDefaults: map[string]int32{},
	}
	s.claims.Store(&Claims{owners: indexOwners(nil)})
	s.rested.Store(&time.Time{})
	s.writer = crd.NewWriter(s.Source, "ZoneReservation", s.wantedStatus, s.written, crd.WithClock(s.Clock))
	return s
}

// Start starts the watches and the workers, which run until ctx ends. It is called before the handle's informers are
// started. It makes no request: an error is a mistake of the program.
//
// known tell when the ledger has seen the cluster: nothing is held before that.
func (s *Server) Start(ctx context.Context, known []cache.DoneChecker) error {
	var err error
	s.reservations, err = crd.Watch(ctx, s.Source, informer.Latest(s.reservationSeen, s.reservationGone), nil)
	if err != nil {
		return fmt.Errorf("reservations: %w", err)
	}
	s.classes, err = crd.Watch(ctx, s.Source, informer.Latest(s.classSeen, s.classGone), nil)
	if err != nil {
		return fmt.Errorf("priority classes: %w", err)
	}
	collected.Export(ctx, s)
	go s.runPasses(ctx)
	go s.lead(ctx, known)
	return nil
}

// lead waits until this process leads and then does what only the leader does.
func (s *Server) lead(ctx context.Context, known []cache.DoneChecker) {
	select {
	case <-s.Leader.Leading():
	case <-ctx.Done():
	}
	for _, handler := range known {
		select {
		case <-handler.Done():
		case <-ctx.Done():
		}
	}
	if s.AwaitStart(ctx); ctx.Err() != nil {
		s.writer.Stop()
		return
	}
	s.writer.Run(ctx)
}

// AwaitStart waits, with a bound, until the reservations that existed at the start of the process are known, so that
// the first pods after a restart or a failover do not take what was held. It is called by scheduling cycles, which run
// in the leader only, once the ledger knows the cluster. Later calls cost an atomic load.
func (s *Server) AwaitStart(ctx context.Context) {
	if s.placing.Load() {
		return
	}
	began := s.awaited()
	ticker := s.Clock.NewTicker(startPollInterval)
	defer ticker.Stop()
	for !s.startKnown() && s.Clock.Since(began) < startTimeout {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
	s.passing.Lock()
	s.needApply() // a standby has seen statuses change since it last did
	s.apply()
	s.passing.Unlock()
	if !s.placing.Swap(true) {
		s.mu.Lock()
		for uid := range s.entries {
			s.writer.Now(metav1.NamespaceNone, uid)
		}
		s.mu.Unlock()
	}
	s.RequestPass()
}

// startKnown reports whether all is known that the first placement depends on.
func (s *Server) startKnown() bool {
	if !s.reservations.Settled() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.object.Valid() && e.object.Spec.priority == nil {
			return s.classes.Settled()
		}
	}
	return true
}

// Claims returns the reservations that apply. It may be called from any goroutine, also under the lock of the
// scheduling queue.
func (s *Server) Claims() *Claims { return s.claims.Load() }

// Idle reports whether the workers have nothing to do until an event comes or the clock moves.
func (s *Server) Idle() bool {
	return s.passes.Idle() && (s.writer.Idle() || !s.placing.Load())
}

// classSeen and classGone record the priority classes of the cluster.
func (s *Server) classSeen(class *schedulingv1.PriorityClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, had := s.globalDefaults[class.Name]
	if class.GlobalDefault {
		s.globalDefaults[class.Name] = class.Value
	} else {
		delete(s.globalDefaults, class.Name)
	}
	if value, has := s.globalDefaults[class.Name]; had != has || before != value {
		s.requestApplyLocked()
	}
}

func (s *Server) classGone(class *schedulingv1.PriorityClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, had := s.globalDefaults[class.Name]; had {
		delete(s.globalDefaults, class.Name)
		s.requestApplyLocked()
	}
}

// defaultPriorityLocked is that of pods without a priority class, and the class that says so, if any. Of several the
// API server takes the lowest.
func (s *Server) defaultPriorityLocked() (value int32, class string) {
	for name, v := range s.globalDefaults {
		if class == "" || v < value || v == value && name < class {
			value, class = v, name
		}
	}
	return value, class
}
