package reservations

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/leader"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

const (
	// startBound is how long AwaitStart waits at most for the reservations that exist at the start.
	startBound = 5 * time.Second
	// startPoll is how often it looks.
	startPoll = 10 * time.Millisecond
)

// Handle is the part of the framework's handle that the package needs.
type Handle interface {
	SharedInformerFactory() informers.SharedInformerFactory
	KubeConfig() *rest.Config
	EventRecorder() events.EventRecorderLogger
}

// Waker is told what may let pods in that holds kept out. It is called by one goroutine, with no lock held.
type Waker interface {
	// Freed tells that less is held than before, or is held for other pods.
	Freed(ctx context.Context)
	// Placed tells that these claims have new slots.
	Placed(ctx context.Context, claims map[ledger.ClaimID]bool)
}

// Reservations are the ZoneReservations of one scheduler. Make one with New.
type Reservations struct {
	clock     clock.WithTicker
	source    Source
	isLeading func(context.Context, Handle) <-chan struct{}
	ledger    *ledger.Ledger
	keeper    *placement.Keeper
	waker     Waker
	handle    Handle // set by Start
	watch     Watch  // set by Start; nil without an API server
	started   time.Time

	comparisonOperators bool

	// owners is what applies now; it is replaced, never changed.
	owners atomic.Pointer[ownerIndex]
	// placing is set once this process places slots, and stays so.
	placing atomic.Bool
	opened  atomic.Bool // AwaitStart need not wait any more
	// due is set when slots may have to be placed anew, whatever the ledger tells.
	due atomic.Bool
	// room is set when there may be room that was not there: a pod has left its node, or time has passed.
	room atomic.Bool
	// unfilled is set while a reservation lacks slots.
	unfilled atomic.Bool
	kick     chan struct{} // has room for one
	// statusQueue has the reservations whose status may be out of date.
	statusQueue workqueue.TypedDelayingInterface[types.UID]
	// written is when the status of each reservation was last written. It belongs to the one goroutine that does.
	written   map[types.UID]time.Time
	nominated nominations

	passing sync.Mutex // serializes passes, is taken before mu, and guards the two below
	// demands are the specs that the keeper has.
	demands map[types.UID]*spec
	// touched are the reservations of which there is news that no pass has acted upon.
	touched map[types.UID]bool

	mu      sync.Mutex // guards everything below, and the entries
	entries map[types.UID]*entry
	served  bool // the CustomResourceDefinition is there
	// freed and placed are what the waker is to be told.
	freed  bool
	placed map[ledger.ClaimID]bool
}

// entry is what is kept about one reservation object.
type entry struct {
	obj  *v1alpha1.ZoneReservation
	spec *spec // nil while it can not be applied
	errs field.ErrorList
	// prefer says on which nodes how many slots were before this process placed any.
	prefer map[string]int
	// over is set once the reservation has expired.
	over bool
	// overlaps are the reservations that win pods of this one.
	overlaps []string
	// lost are the nodes that went with slots which have no other place yet.
	lost sets.Set[string]
	// overfull are the nodes that lack room for slots, and since when; crowded those for which slots were given up, until
	// all have a place again.
	overfull map[string]time.Time
	crowded  sets.Set[string]
	// refused is why the keeper did not take the reservation, although it could be read.
	refused error
	// report is what the keeper made of the reservation last; nil before that.
	report *placement.Report
}

// Option changes how Reservations are built.
type Option func(*Reservations)

// WithSource takes reservations from source instead of from the API server of the handle.
func WithSource(source Source) Option { return func(s *Reservations) { s.source = source } }

// WithClock tells the time by c instead of the system's clock.
func WithClock(c clock.WithTicker) Option { return func(s *Reservations) { s.clock = c } }

// WithLeading asks f, instead of package leader, for the channel that is closed when this process may write.
func WithLeading(f func(context.Context, Handle) <-chan struct{}) Option {
	return func(s *Reservations) { s.isLeading = f }
}

// WithComparisonOperators tells whether tolerations of slots may compare numbers, as the scheduler's feature gate
// TaintTolerationComparisonOperators does for pods.
func WithComparisonOperators(enabled bool) Option {
	return func(s *Reservations) { s.comparisonOperators = enabled }
}

// New returns the reservations of one scheduler, which hold capacity in l. Nothing runs before Start.
func New(l *ledger.Ledger, waker Waker, options ...Option) *Reservations {
	s := &Reservations{
		clock:     clock.RealClock{},
		isLeading: func(ctx context.Context, h Handle) <-chan struct{} { return leader.Of(ctx, h).Leading() },
		ledger:    l,
		keeper:    placement.NewKeeper(l),
		waker:     waker,
		kick:      make(chan struct{}, 1),
		written:   map[types.UID]time.Time{},
		demands:   map[types.UID]*spec{},
		touched:   map[types.UID]bool{},
		entries:   map[types.UID]*entry{},
		placed:    map[ledger.ClaimID]bool{},
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// Start starts the watch and the workers, which run until ctx ends. It is called once, before the handle's informers are
// started. It makes no request: an error is a mistake of the program.
//
// known tell when the ledger has seen the cluster: a leader places nothing before that.
func (s *Reservations) Start(ctx context.Context, h Handle, known ...cache.DoneChecker) error {
	if s.source == nil && h.KubeConfig() == nil {
		return nil // no API server, so no reservations
	}
	s.handle = h
	s.started = s.clock.Now()
	s.statusQueue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.UID]{Clock: s.clock})
	if err := s.startWatch(ctx, h.KubeConfig()); err != nil {
		return fmt.Errorf("reservations: %w", err)
	}
	collected.Export(ctx, s)
	go s.work(ctx)
	go func() {
		leads := s.isLeading(ctx, h)
		for _, handler := range known {
			select {
			case <-handler.Done():
			case <-ctx.Done():
			}
		}
		select {
		case <-leads:
			s.lead(ctx)
		case <-ctx.Done():
		}
		<-ctx.Done()
		s.statusQueue.ShutDown()
	}()
	return nil
}

// AwaitStart waits, with a bound, until the reservations that existed at the start of the process are known, and places
// their slots, so that the first pods after a restart or a failover do not take what was held. It is called by
// scheduling cycles, which run in the leader only, once the ledger knows the cluster. Later calls cost an atomic load.
func (s *Reservations) AwaitStart(ctx context.Context) {
	if s.watch == nil || s.opened.Load() {
		return
	}
	ticker := s.clock.NewTicker(startPoll)
	defer ticker.Stop()
	for !s.watch.Settled() && s.clock.Since(s.started) < startBound {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
	s.placing.Store(true)
	s.due.Store(true)
	s.pass()
	s.wakeWorker()
	s.opened.Store(true)
}

// Refill lets reservations that lack slots take room that has become free, ahead of the pod of the scheduling cycle
// that sees it. It must not be called in a pod-group cycle, whose snapshot changes without its generations.
func (s *Reservations) Refill(view placement.View) {
	// Whether any lacks slots is for the keeper to say: what this package knows of it may be a moment old, and
	// that is when the room of a replica goes that has just been replaced.
	if !s.placing.Load() || !s.Any() {
		return
	}
	if s.note(s.keeper.Refill(view, s.nominated.onNodes(s.ledger))) {
		s.wakeWorker()
	}
}

// OwnerOf returns what the pod's reservation gives it, or nil. For most pods it costs a map lookup. It may be called
// from any goroutine, also under the lock of the scheduling queue.
func (s *Reservations) OwnerOf(pod *v1.Pod) *Owner {
	index := s.owners.Load()
	if index == nil {
		return nil
	}
	return index.of(pod)
}

// Any reports whether any reservation applies. It may be called as OwnerOf may.
func (s *Reservations) Any() bool {
	index := s.owners.Load()
	return index != nil && len(index.byNamespace) > 0
}
