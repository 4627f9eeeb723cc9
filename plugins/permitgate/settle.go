package permitgate

import (
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
		if len(e.plan.hints) > 0 {
			g.freed.note(e.id) // members without a node leave room that was proposed to them
		}
		e.plan = roundPlan{round: round}
	}
	if failed {
		e.noteTriedDomain(g.clock.Now())
	}
	if failed && e.preempting != nil {
		// The filters refuse what a search took for room: it asks about one member's devices at a time.
		e.evictAfter = g.clock.Now().Add(searchAtMost)
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

	setIn(g.planning, e, len(e.plan.hints) > 0 || e.preempting != nil)
	setIn(g.cycling, e, !e.cycle.began.IsZero())
	setIn(g.refused, e, e.lacksRoom())
	e.woken = e.woken && e.lacksRoom()
	if e.gang.Ready() {
		g.queue.update(e.rank(), e.gang.Admitted())
	} else {
		g.queue.remove(e.id)
	}
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

// setIn has a gang in a set or not.
func setIn(set map[*gangEntry]struct{}, e *gangEntry, in bool) {
	if in {
		set[e] = struct{}{}
	} else {
		delete(set, e)
	}
}
