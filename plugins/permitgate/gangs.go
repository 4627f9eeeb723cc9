package permitgate

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/plugins/permitgate/barrier"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// gangs is the state of all gangs of one scheduler. Its methods may be called from several goroutines, also under the
// scheduling queue's lock: while its own lock is held neither the queue nor a waiting pod nor the API server is called.
type gangs struct {
	clock  clock.WithTicker
	config gang.Config
	// agenda has the gangs that the worker must look at.
	agenda  *agenda.Agenda[gangID]
	keeping *keeping
	freed   *freedRoom
	// natives are the PodGroups and pods of scheduling.k8s.io; nil if their gangs are not guarded.
	natives *nativeObjects

	mu   sync.Mutex // guards everything below, the gangs included
	byID map[gangID]*gangEntry
	// ids has the name of each gang, and hierarchy the composite groups that native ones are part of.
	ids       map[*gang.Gang]gangID
	hierarchy gang.Hierarchy
	queue     *gangQueue // those that are ready to be looked at
	// open are the few gangs of which a look at another one, or freed room, has to know; see isOpenLocked.
	open map[*gangEntry]struct{}
	// abandon ends a gang's preemption.
	abandon func(id gangID)
	// missing says why a PodGroup of scheduling.x-k8s.io is not known.
	missing func() (gang.Reason, string)
}

// gangID names a gang of either API.
type gangID = podgroup.ID

func newGangs(c clock.WithTicker) *gangs {
	a := agenda.New[gangID](c)
	g := &gangs{
		clock: c, agenda: a, keeping: newKeeping(a),
		byID: map[gangID]*gangEntry{}, ids: map[*gang.Gang]gangID{}, queue: newGangQueue(), open: map[*gangEntry]struct{}{},
	}
	g.freed = &freedRoom{gangs: g}
	return g
}

// read runs f on the gang if it exists. f changes nothing, and must not call anything that blocks or takes another
// lock.
func (g *gangs) read(id gangID, f func(e *gangEntry)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.byID[id]
	if ok {
		f(e)
	}
	return ok
}

// update runs f on the gang if it exists, and does what follows from the change. f must not call anything that blocks
// or takes another lock, but for those of informers' stores.
func (g *gangs) update(id gangID, f func(e *gangEntry, now time.Time)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.byID[id]
	if ok {
		f(e, g.clock.Now())
		g.afterChangeLocked(e)
	}
	return ok
}

// change is update for a gang that is made if it does not exist. The worker acts on it.
func (g *gangs) change(id gangID, f func(e *gangEntry, now time.Time)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.entryLocked(id)
	f(e, g.clock.Now())
	g.afterChangeLocked(e)
	g.agenda.Add(id)
}

// entryLocked returns a gang, which is made if it does not exist.
func (g *gangs) entryLocked(id gangID) *gangEntry {
	e, ok := g.byID[id]
	if !ok {
		config := g.config
		if config.Native = id.Native; id.Native {
			config.Hierarchy = &g.hierarchy
		}
		e = &gangEntry{
			id: id, gang: gang.New(config), pods: map[types.UID]*member{}, priorities: map[int32]int{},
		}
		e.barrier = barrier.New(e.gang)
		g.byID[id], g.ids[e.gang] = e, id
	}
	return e
}

// memberOf returns the gang that a pod is a member of, as far as this scheduler has to do with it.
func (g *gangs) memberOf(pod *v1.Pod) (gangID, bool) {
	id, member := podgroup.IDOf(pod)
	return id, member && (!id.Native || g.natives != nil)
}

// preemptsAlone reports whether a pod is in no gang, or a member that is scheduled like any pod.
func (g *gangs) preemptsAlone(pod *v1.Pod) (alone bool) {
	id, member := podgroup.Of(pod)
	if !member {
		return true
	}
	g.read(id, func(e *gangEntry) { alone = e.schedulesAlone() })
	return alone
}

// each runs f on all gangs.
func (g *gangs) each(f func(e *gangEntry)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.byID {
		f(e)
	}
}

// release releases members that wait for their gang alone, and returns those that are let go.
func (g *gangs) release(id gangID, ready []types.UID) (released []types.UID) {
	g.update(id, func(e *gangEntry, now time.Time) {
		released = e.gang.Release(ready, now)
		if len(released) > 0 {
			g.actOnLocked(e.gang.Relatives())
		}
	})
	if len(released) > 0 {
		g.agenda.Add(id)
	}
	return released
}

// lacking lists the gangs with members that wait for a claim.
func (g *gangs) lacking(claim claimRef) (ids []gangID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, e := range g.byID {
		if e.lackClaims > 0 && e.lacks(claim) {
			ids = append(ids, id)
		}
	}
	return ids
}

// loseNode has members lose a node that is gone or, if not, that a gang's preemption lose it which waits for it: it may
// take no pods any more.
func (g *gangs) loseNode(node string, gone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	for _, e := range g.byID {
		lost := gone && e.gang.LoseNode(node, now)
		if e.preemptsOn(node) {
			g.abandon(e.id)
			e.endPreemption()
			e.searchAfter = time.Time{}
			e.gang.RoomFreed(now)
			lost = true
		}
		if lost {
			g.afterChangeLocked(e)
			g.agenda.Add(e.id)
		}
	}
}

// actAt has the worker look at a gang at a time; zero means never.
func (g *gangs) actAt(id gangID, at time.Time) {
	if !at.IsZero() {
		g.agenda.AddAt(id, at)
	}
}

// actOnAll has the worker look at all gangs.
func (g *gangs) actOnAll() { g.each(func(e *gangEntry) { g.agenda.Add(e.id) }) }

// admitNext admits the gang that is next, and returns the member to be activated if it is a native one, and when to ask
// again; zero means not by time.
func (g *gangs) admitNext() (activate *v1.Pod, again time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	id, found, again := g.queue.next(now)
	if found {
		e := g.byID[id]
		if id.Native {
			e.activated, activate = true, e.firstUnbound()
		} else {
			e.gang.Admit(now)
		}
		g.afterChangeLocked(e)
		g.agenda.Add(id)
	}
	return activate, again
}

// countRefusedLocked counts the gangs that lack room, or are about to be refused.
func (g *gangs) countRefusedLocked() (n int) {
	for e := range g.open {
		if e.lacksRoom() || e.gang.Ready() {
			n++
		}
	}
	return n
}

// restLocked has gangs of a priority and of lower ones wait for their turn after a look that took a time at one that
// still does not fit.
func (g *gangs) restLocked(e *gangEntry, took time.Duration, now time.Time) {
	g.queue.rest(e.lowestPriority(), took, now)
}

// forgetLocked drops a gang without a PodGroup and pods.
func (g *gangs) forgetLocked(e *gangEntry) bool {
	if e.group != nil || !e.gang.Empty() || len(e.plan.hints)+len(e.unnominated) > 0 {
		return false
	}
	delete(g.byID, e.id)
	delete(g.ids, e.gang)
	g.queue.remove(e.id)
	delete(g.open, e)
	return true
}

// refusal returns the status for a reason, nil for none. Its code prevents preemption.
func (g *gangs) refusal(id gangID, reason gang.Reason, detail string) *fwk.Status {
	if reason == gang.ReasonNone {
		return nil
	}
	if reason == gang.ReasonNotFound && !id.Native {
		_, detail = g.missing()
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "PodGroup "+id.String()+": "+detail)
}
