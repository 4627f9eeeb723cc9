package permitgate

import "zonewise.dev/plugins/permitgate/gang"

// afterChangeLocked does what cannot wait for the worker after a gang's state has changed: it answers members at the
// barrier, ends what does not match the gang's state any more, and notes what the gang waits for.
func (g *gangs) afterChangeLocked(e *gangEntry) {
	e.barrier.Answer()
	g.settlePlanLocked(e)
	setIn(g.planning, e, len(e.plan.hints) > 0 || e.preempting != nil)
	lacksRoom := !e.id.Native && e.gang.Phase() == gang.Backoff && e.gang.LastRollback().Cause.Capacity()
	e.woken = e.woken && lacksRoom
	setIn(g.lackRoom, e, lacksRoom)
	if e.gang.Ready() {
		g.queue.update(e.rank(), e.gang.Admitted())
	} else {
		g.queue.remove(e.id)
	}
}

// setIn has a gang in a set or not.
func setIn(set map[*gangEntry]struct{}, e *gangEntry, in bool) {
	if in {
		set[e] = struct{}{}
	} else {
		delete(set, e)
	}
}

// settlePlanLocked ends the plan of a round that is over, a preemption that is not needed any more, and nodes
// that are kept.
func (g *gangs) settlePlanLocked(e *gangEntry) {
	if round := e.gang.RoundNumber(); round != e.plan.round {
		if len(e.plan.hints) > 0 {
			g.freed.note(e.id) // members without a node leave room that was proposed to them
		}
		e.plan = roundPlan{round: round}
		if round == 0 {
			e.noteTriedDomain(g.clock.Now())
		}
	}
	phase := e.gang.Phase()
	lacks := phase == gang.Backoff || phase == gang.Queued
	if e.preempting != nil && !lacks {
		g.abandon(e.id)
		if e.gang.RoundNumber() == 0 {
			e.endPreemption()
		}
		e.preempting = nil // a round that begins keeps its nodes
	}
	if !e.gang.LacksQuorum() {
		if phase != gang.Pending {
			e.lostNodes = nil
		}
		g.keeping.stop(e.id)
	}
}
