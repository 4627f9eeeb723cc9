package permitgate

import (
	"time"

	"zonewise.dev/plugins/permitgate/gang"
)

// afterChangeLocked does what cannot wait for the worker after a gang's state has changed, in this order: members at
// the barrier get their answers; what the gang's state does not justify any more ends (its plan, its preemption, the
// nodes that it keeps); and it is noted what the gang waits for.
func (g *gangs) afterChangeLocked(e *gangEntry) {
	e.barrier.Answer()
	g.tellRelativesLocked(e)

	round := e.gang.RoundNumber()
	failed := round == 0 && e.plan.round != 0 && e.gang.Phase() == gang.Backoff
	if round != e.plan.round {
		e.plan = roundPlan{round: round}
	}
	if failed {
		e.noteTriedDomain(g.clock.Now())
	}
	if failed && e.preempting != nil {
		// The filters refuse what a search took for room: how many volumes a node may attach, say, it asks for one member.
		e.evictAfter = g.clock.Now().Add(evictPauseAtMost)
	}
	if e.preempting != nil && !e.usesPreemption(failed) {
		g.abandon(e.id)
		e.endPreemption()
	}
	if !e.gang.LacksQuorum() {
		g.keeping.stop(e.id)
		if e.gang.Phase() != gang.Pending {
			e.lostNodes = nil // the gang has replaced them
		}
	}

	if t, admitted, ready := e.turn(); ready {
		g.queue.update(t, admitted)
	} else {
		g.queue.remove(e.id)
	}
	if g.isOpenLocked(e) {
		g.open[e] = struct{}{}
	} else {
		delete(g.open, e)
	}
}

// isOpenLocked reports whether a gang lacks room or is to be looked at, has a plan or a preemption, is in a native
// group's cycle, or awaits members. Gangs that run, and PodGroups without members, are none of these: there may be any
// number of them, and the others are gone through for each look and whenever room becomes free.
func (g *gangs) isOpenLocked(e *gangEntry) bool {
	return e.lacksRoom() || e.gang.Ready() || len(e.plan.hints) > 0 || e.preempting != nil || !e.cycle.began.IsZero() ||
		g.clock.Now().Before(e.awaitedUntil)
}

// turn returns a gang's place in the queue, if it is ready to be looked at, and whether it has been admitted.
func (e *gangEntry) turn() (t turn, admitted, ready bool) {
	switch phase := e.gang.Phase(); {
	case e.id.Native:
		e.woken = e.woken && e.lacksRoom()
		admitted, ready = e.activated, e.woken && !e.gang.Closed()
	case phase == gang.Backoff || phase == gang.Queued:
		admitted, ready = e.gang.Admitted(), e.gang.Ready()
	default:
		e.woken = false
	}
	t = turn{e.rank(), e.lastCycle.notBefore, e.latest}
	if !e.woken {
		t.latest = e.gang.RetryAt()
	}
	return t, admitted, ready
}

// wake has a gang wait for its turn, but not for longer than to a time.
func (e *gangEntry) wake(latest time.Time) {
	if !e.woken {
		e.latest = latest
	}
	e.woken, e.activated = true, false
}

// usesPreemption reports whether a gang goes on with its preemption: until victims have gone it waits, and then it has
// one round on their room.
func (e *gangEntry) usesPreemption(roundFailed bool) bool {
	switch e.gang.Phase() {
	case gang.Backoff, gang.Queued:
		return !roundFailed
	case gang.Gathering, gang.Waiting:
		return e.preempting.cleared && e.gang.RoundNumber() != 0
	case gang.Pending, gang.Releasing, gang.Whole:
	}
	return false
}

// lacksRoom reports whether room that becomes free may help a gang: it was refused for lack of it, or the last cycle of
// a native gang has placed no member.
func (e *gangEntry) lacksRoom() bool {
	if e.id.Native {
		return e.lastCycle.happened && e.cycle.began.IsZero()
	}
	return e.gang.Phase() == gang.Backoff && e.gang.LastRollback().Cause.Capacity()
}
