package permitgate

import (
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/plugins/permitgate/gang"
)

// gangs is the state of all gangs of one scheduler. Its methods may be called from several goroutines, also under the scheduling
// queue's lock: while its own lock is held neither the queue nor a waiting pod nor the API server is called.
type gangs struct {
	clock  clock.WithTicker
	config gang.Config
	// agenda has the gangs that the worker must look at.
	agenda *agenda.Agenda[types.NamespacedName]
	// bookings counts those of all gangs, waitingCount is how many gangs wait for room, and collecting is true while one collects it.
	// Scheduling cycles read them without the lock.
	bookings     bookingCounts
	waitingCount atomic.Int64
	collecting   atomic.Bool

	mu             sync.Mutex // guards everything below, the gangs included
	byKey          map[types.NamespacedName]*entry
	booked         map[*entry]struct{} // those with bookings
	waiting        map[*entry]struct{} // those that wait for room
	failedSearches map[*entry]struct{} // those without a quorum whose last search for victims failed
	// hintless are the gangs that gather without hints, each of a higher priority than those before it.
	hintless map[*entry]struct{}
	// collects is the gang that collects room, or nil.
	collects *entry
	// abandon ends a gang's preemption.
	abandon func(key types.NamespacedName)
	// missing says why a PodGroup is not known.
	missing func() (gang.Reason, string)
}

func newGangs(c clock.WithTicker) *gangs {
	return &gangs{
		clock: c, agenda: agenda.New[types.NamespacedName](c),
		byKey: map[types.NamespacedName]*entry{}, booked: map[*entry]struct{}{}, waiting: map[*entry]struct{}{}, failedSearches: map[*entry]struct{}{},
		hintless: map[*entry]struct{}{},
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
			priorities: map[int32]int{}, foreign: map[string]int{}, books: newBooks(&g.bookings),
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
// ends bookings, and notes what the gang waits for.
func (g *gangs) settledLocked(e *entry) {
	e.answerBarrier()
	g.settleBookingsLocked(e)
	keep(g.booked, e, len(e.books.of) > 0)
	keep(g.waiting, e, e.gang.Phase() == gang.Backoff && e.gang.Last().Cause.Capacity() && (e.preempting == nil || e.preempting.cleared))
	keep(g.failedSearches, e, e.searchedInVain())
	g.waitingCount.Store(int64(len(g.waiting)))
	if _, gathers := g.hintless[e]; gathers && e.gang.Round() == 0 {
		delete(g.hintless, e)
		for other := range g.waiting {
			if other.defers {
				g.mayHelpLocked(other, true, g.clock.Now())
			}
		}
	}
}

// defersLocked reports whether a gang must not gather without hints now, because one of its priority or a higher one does.
func (g *gangs) defersLocked(e *entry) bool {
	for other := range g.hintless {
		if other != e && other.lowest() >= e.lowest() {
			return true
		}
	}
	return false
}

// keep has a gang in a set or not.
func keep(set map[*entry]struct{}, e *entry, in bool) {
	if in {
		set[e] = struct{}{}
	} else {
		delete(set, e)
	}
}

// settleBookingsLocked ends the bookings that do not match the gang's state any more.
func (g *gangs) settleBookingsLocked(e *entry) {
	if round := e.gang.Round(); round != e.books.hints.round {
		e.books.endAll(bookedForRound)
		e.books.hints = hints{round: round}
		if round == 0 {
			e.roundEnded(g.clock.Now())
		}
	}
	phase := e.gang.Phase()
	lacks := phase == gang.Backoff || phase == gang.Queued
	if !lacks {
		if e.preempting != nil {
			g.abandon(e.key)
			e.preempting = nil
		}
		e.books.endAll(bookedByVictims)
	}
	if g.collects == e && (!lacks && !e.replaces() || !g.clock.Now().Before(e.collecting.until)) {
		g.stopCollectingLocked()
	}
	if e.books.kinds[bookedForBind] > 0 {
		for uid, b := range e.books.of {
			if b.kind == bookedForBind && !e.gang.KeepsNode(uid) {
				e.books.end(uid, false)
			}
		}
	}
}

// stopCollectingLocked ends the collecting of the gang that does so.
func (g *gangs) stopCollectingLocked() {
	e := g.collects
	g.collects = nil
	g.collecting.Store(false)
	e.collecting.until = time.Time{}
	e.books.endAll(bookedByCollecting)
	g.agenda.Add(e.key)
}

// mayHelpLocked says that something has changed that may help a gang: room if that is sure, or else what may as well have been its
// own doing or that of another gang.
func (g *gangs) mayHelpLocked(e *entry, sure bool, now time.Time) {
	if sure {
		e.gang.RoomFreed(now)
	} else {
		e.gang.RoomMayBeOwn(now)
	}
	g.settledLocked(e)
	g.agenda.Add(e.key)
}

// forgetLocked drops a gang without a PodGroup and pods.
func (g *gangs) forgetLocked(e *entry) bool {
	if !e.gang.Empty() || len(e.books.of)+len(e.books.dropped) > 0 {
		return false
	}
	delete(g.byKey, e.key)
	for _, set := range []map[*entry]struct{}{g.booked, g.waiting, g.failedSearches, g.hintless} {
		delete(set, e)
	}
	g.waitingCount.Store(int64(len(g.waiting)))
	return true
}

// nominee is a pod for the framework's nominator, which uses only GetPod.
type nominee struct {
	fwk.PodInfo
	pod *v1.Pod
}

// GetPod implements fwk.PodInfo.
func (n nominee) GetPod() *v1.Pod { return n.pod }

// place nominates the bookings of all gangs except one, to which the pod of the current cycle may belong. It is called
// without locks.
func (g *gangs) place(logger klog.Logger, nominator fwk.PodNominator, except types.NamespacedName) {
	if g.bookings.unplaced.Load() == 0 {
		return
	}
	type placing struct {
		e   *entry
		uid types.UID
		b   booking
	}
	var todo []placing
	g.mu.Lock()
	now := g.clock.Now()
	for e := range g.booked {
		if e.key == except {
			continue
		}
		for uid := range e.books.unplaced {
			b := e.books.of[uid]
			todo = append(todo, placing{e, uid, *b})
			if b.shown = now.Before(b.fresh); !b.shown {
				e.books.setPlaced(uid, true)
			}
		}
	}
	g.mu.Unlock()
	for _, p := range todo {
		nominator.AddNominatedPod(logger, nominee{pod: p.b.pod}, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: p.b.node})
	}
	// Take back bookings that have ended meanwhile: they may have been dropped before they were placed.
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range todo {
		if b := p.e.books.of[p.uid]; b == nil || b.node != p.b.node {
			p.e.books.dropped = append(p.e.books.dropped, p.b.pod)
			g.agenda.Add(p.e.key)
		}
	}
}

// drop ends the nominations of bookings that have ended, but for pods that have been nominated again since. It holds the lock
// meanwhile, so that no cycle nominates them in between: the nominator has a lock of its own, and calls nobody under it.
func (g *gangs) drop(nominator fwk.PodNominator, key types.NamespacedName, dropped []*v1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byKey[key]
	for _, pod := range dropped {
		if e != nil {
			if b := e.books.of[pod.UID]; b != nil && (b.placed || b.shown) {
				continue
			}
		}
		nominator.DeleteNominatedPodIfExists(pod)
	}
}

// lift removes the nominations of a gang from the nodes that one of its members is tried on; nil means all nodes.
func (g *gangs) lift(nominator fwk.PodNominator, key types.NamespacedName, nodes []string) {
	var lifted []*v1.Pod
	g.look(key, func(e *entry, _ time.Time) { lifted = e.books.lift(nodes) })
	for _, pod := range lifted {
		nominator.DeleteNominatedPodIfExists(pod)
	}
}
