package permitgate

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/proposal"
)

// gangs is the state of all gangs of one scheduler. Its methods may be called from several goroutines, also under the scheduling
// queue's lock: while its own lock is held neither the queue nor a waiting pod nor the API server is called.
type gangs struct {
	clock  clock.WithTicker
	config gang.Config
	// agenda has the gangs that the worker must look at.
	agenda *agenda.Agenda[types.NamespacedName]
	// unplaced is how many bookings the framework does not know as nominations, short how many gangs wait for room.
	// Scheduling cycles read both without the lock.
	unplaced, short atomic.Int64
	// collecting is true while a gang collects room.
	collecting atomic.Bool
	// placed is how many bookings the framework knows.
	placed atomic.Int64

	mu      sync.Mutex // guards everything below, the gangs included
	byKey   map[types.NamespacedName]*entry
	booked  map[*entry]struct{} // those with bookings
	waiting map[*entry]struct{} // those that wait for room
	vain    map[*entry]struct{} // those without a quorum whose last search for victims failed
	// hintless is the one gang that gathers without hints, or nil.
	hintless *entry
	// collects is the gang that collects room, or nil.
	collects *entry
	// abandon ends a gang's preemption; nil in some tests.
	abandon func(key types.NamespacedName)
	stopped bool
}

// entry is a gang with the plugin's state of it.
type entry struct {
	key  types.NamespacedName
	gang *gang.Gang

	group *v1alpha1.PodGroup // nil if it does not exist
	wants wants              // what the PodGroup asks for besides a quorum
	pods  map[types.UID]*member
	// priorities counts the pods by priority, foreign those without a node by their scheduler if it lacks the plugin;
	// unbound is how many have no node, arrivals how many pods there have ever been.
	priorities        map[int32]int
	foreign           map[string]int
	unbound, arrivals int

	books books
	hints hints

	refusal refusal
	// again is true if the queued gang was refused before, defers if that was because another gang gathers without hints.
	again, defers bool
	// confined is the domain that the members may not leave; tried are the domains that the filters have refused since the
	// last change that may help.
	confined domain
	tried    map[string]bool
	barrier  map[types.UID]chan<- verdict
	answered int // the gang's departures at the last answer to members at the barrier

	preempting *preemption // nil unless the gang preempts
	search     searched
	collecting collecting
	seen       seen
}

// member is a live pod of a gang.
type member struct {
	pod *v1.Pod // as the scheduler's informer last showed it; each change makes a new member
	// signature identifies what the member asks of a node (see proposal.Signature), amounts is what it takes from it.
	signature string
	amounts   []proposal.Amount
	// foreign is true if the pod names a scheduler without the plugin.
	foreign bool
	// node is the node of its last Permit, in case its bind fails.
	node string
}

// refusal says what must change before a refused gang is looked at again.
type refusal struct {
	// missing is for how many more members there must be room, gain for how many more there may be since.
	missing, gain int
	gains         gains
	cost          time.Duration // how long the attempt took
	at            time.Time     // of the last look at it
}

// gains returns the most members of a gang that a node takes. It is used in scheduling cycles only.
type gains interface {
	Node(at string) int
}

func newGangs(c clock.WithTicker) *gangs {
	return &gangs{
		clock: c, agenda: agenda.New[types.NamespacedName](c),
		byKey: map[types.NamespacedName]*entry{}, booked: map[*entry]struct{}{}, waiting: map[*entry]struct{}{}, vain: map[*entry]struct{}{},
	}
}

// look runs f on the gang if it exists. f must not call anything that blocks or takes another lock.
func (g *gangs) look(key types.NamespacedName, f func(e *entry, now time.Time)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.byKey[key]
	if ok {
		f(e, g.clock.Now())
		g.settledLocked(e)
	}
	return ok
}

// change runs f on the gang, which is made if it does not exist, and has the worker look at it.
func (g *gangs) change(key types.NamespacedName, f func(e *entry, now time.Time)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.byKey[key]
	if !ok {
		e = &entry{
			key: key, gang: gang.New(g.config), pods: map[types.UID]*member{}, barrier: map[types.UID]chan<- verdict{},
			priorities: map[int32]int{}, foreign: map[string]int{},
		}
		g.byKey[key] = e
	}
	f(e, g.clock.Now())
	g.settledLocked(e)
	g.agenda.Add(key)
}

// each runs f on all gangs.
func (g *gangs) each(f func(e *entry)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.byKey {
		f(e)
	}
}

// all has the worker look at all gangs.
func (g *gangs) all() { g.each(func(e *entry) { g.agenda.Add(e.key) }) }

// settledLocked does what cannot wait for the worker after a gang's state has changed: it answers members at the barrier,
// ends bookings, and records whether the gang waits for room.
func (g *gangs) settledLocked(e *entry) {
	e.answerBarrier()
	g.settleBookingsLocked(e)
	g.settleCollectingLocked(e)
	_, was := g.waiting[e]
	waits := e.gang.Phase() == gang.Backoff && e.gang.Last().Cause.Capacity() && (e.preempting == nil || e.preempting.cleared)
	if waits != was {
		if waits {
			g.waiting[e] = struct{}{}
		} else {
			delete(g.waiting, e)
		}
		g.short.Store(int64(len(g.waiting)))
	}
	if e.searchedInVain() {
		g.vain[e] = struct{}{}
	} else {
		delete(g.vain, e)
	}
	if !g.stopped {
		e.seen.update(e.gang)
	}
	if g.hintless == e && e.gang.Round() == 0 {
		g.hintless = nil
		for other := range g.waiting {
			if other.defers {
				g.roomLocked(other, g.clock.Now())
			}
		}
	}
}

// forgetLocked drops a gang without a PodGroup and pods.
func (g *gangs) forgetLocked(e *entry) bool {
	if !e.gang.Empty() || len(e.books.of)+len(e.books.dropped) > 0 {
		return false
	}
	delete(g.byKey, e.key)
	delete(g.booked, e)
	delete(g.waiting, e)
	delete(g.vain, e)
	g.short.Store(int64(len(g.waiting)))
	e.seen.leave()
	return true
}

// stop removes the gangs from the process's metrics.
func (g *gangs) stop() {
	g.each(func(e *entry) { e.seen.leave() })
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
}

// rank orders gangs: by priority, then by the PodGroup's creation, so that younger gangs do not overtake an old large one for ever.
type rank struct {
	priority int32
	created  time.Time
	key      types.NamespacedName
}

func (e *entry) rank() rank {
	r := rank{priority: e.lowest(), key: e.key}
	if e.group != nil {
		r.created = e.group.CreationTimestamp.Time
	}
	return r
}

// compare orders two gangs; negative means that r comes first.
func (r rank) compare(other rank) int {
	return cmp.Or(
		cmp.Compare(other.priority, r.priority), r.created.Compare(other.created),
		cmp.Compare(r.key.Namespace, other.key.Namespace), cmp.Compare(r.key.Name, other.key.Name),
	)
}

// add stores the current state of a live pod.
func (e *entry) add(uid types.UID, m *member) {
	if e.pods[uid] == nil {
		e.arrivals++
	}
	e.remove(uid)
	e.pods[uid] = m
	e.count(m, 1)
}

// remove drops a pod.
func (e *entry) remove(uid types.UID) {
	if m := e.pods[uid]; m != nil {
		e.count(m, -1)
		delete(e.pods, uid)
	}
}

func (e *entry) count(m *member, n int) {
	priority := corev1.PodPriority(m.pod)
	if e.priorities[priority] += n; e.priorities[priority] == 0 {
		delete(e.priorities, priority)
	}
	if m.pod.Spec.NodeName != "" {
		return
	}
	e.unbound += n
	if name := m.pod.Spec.SchedulerName; m.foreign {
		if e.foreign[name] += n; e.foreign[name] == 0 {
			delete(e.foreign, name)
		}
	}
}

// lowest returns the lowest priority of the members, which is that of the gang; 0 without members.
func (e *entry) lowest() (lowest int32) {
	first := true
	for priority := range e.priorities {
		if first || priority < lowest {
			lowest, first = priority, false
		}
	}
	return lowest
}

// highest returns the highest priority of the members.
func (e *entry) highest() int32 {
	highest := e.lowest()
	for priority := range e.priorities {
		highest = max(highest, priority)
	}
	return highest
}

// verdict is the answer to a member at the barrier.
type verdict struct {
	arrival gang.Arrival
	detail  string
}

// answerBarrier answers the members at the barrier for which the gang has decided. Each channel has room for its
// one answer.
func (e *entry) answerBarrier() {
	departures := e.gang.Departures()
	if departures == e.answered {
		return
	}
	e.answered = departures
	for uid, answer := range e.barrier {
		if arrival, detail := e.gang.Verdict(uid); arrival != gang.ArrivalWait {
			answer <- verdict{arrival, detail}
			delete(e.barrier, uid)
		}
	}
}
