package gang

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// live is how many members exist for the quorum.
func (g *Gang) live() int {
	return g.count[memberIdle] + g.count[memberFailed] + g.count[memberWaiting] + g.releasedOrLater()
}

// doneGrace is how long a gang with members that have succeeded, and with new ones that have no node, waits for more new ones: these may
// be the next wave of a Job that has more completions than parallelism, of which the succeeded ones are no part.
const doneGrace = 5 * time.Second

// done is how many of the members that have succeeded count: as many as the others lack of the quorum, once no more are awaited.
func (g *Gang) done() int {
	if !g.doneCount {
		return 0
	}
	exist := g.count[memberIdle] + g.count[memberFailed] + g.count[memberWaiting] + g.preparing() + g.count[memberCommitted] + g.count[memberBound]
	return min(g.count[memberDone], max(0, g.MinMember()-exist))
}

// unbound is how many members exist that have no node yet.
func (g *Gang) unbound() int { return g.count[memberIdle] + g.count[memberFailed] }

// settleDone decides whether members that have succeeded count now.
func (g *Gang) settleDone(now time.Time) {
	g.doneCount = g.unbound() == 0 || !now.Before(g.doneAt())
}

// doneAt is when members that have succeeded count although others have no node yet.
func (g *Gang) doneAt() time.Time { return g.arrivedAt.Add(doneGrace) }

// bound is how many members are bound, or were until they succeeded.
func (g *Gang) bound() int { return g.count[memberBound] + g.done() }

// preparing is how many members have been released, and may still be sent back.
func (g *Gang) preparing() int { return g.count[memberReleased] + g.count[memberPrepared] }

// committedOrLater is how many members are bound, or their binds are on the way and nothing stops them.
func (g *Gang) committedOrLater() int { return g.count[memberCommitted] + g.bound() }

// releasedOrLater is how many members have been released, or are past that.
func (g *Gang) releasedOrLater() int { return g.preparing() + g.committedOrLater() }

// reachable is how many members may still make up the quorum in this round.
func (g *Gang) reachable() int {
	return g.round.idle + g.count[memberWaiting] + g.releasedOrLater()
}

// timeout is how long the first waiting member waits for the quorum.
func (g *Gang) timeout() time.Duration {
	if g.spec != nil && g.spec.Timeout > 0 {
		return g.spec.Timeout
	}
	return g.config.Timeout
}

// move changes a member's state and keeps the counts.
func (g *Gang) move(m *member, to memberState) {
	if m.state < memberStates {
		g.leave(m)
	}
	if to == memberCommitted || to == memberBound {
		m.bindFailed, m.bindRefused = false, false
	}
	m.state = to
	g.count[to]++
	if to == memberIdle && m.inRound {
		g.round.idle++
	}
	if to != memberIdle && to != memberFailed {
		m.stop(taskWake)
	}
}

// leave takes a member out of the counts.
func (g *Gang) leave(m *member) {
	g.count[m.state]--
	switch {
	case m.state == memberPrepared:
		g.departures++
	case m.state == memberIdle && m.inRound:
		g.round.idle--
	}
}

// hold notes whether a member holds something that its rejection would free.
func (g *Gang) hold(m *member, holds bool) {
	switch {
	case holds && !m.holds:
		g.holding++
	case !holds && m.holds:
		g.holding--
	}
	m.holds = holds
}

func (g *Gang) forget(m *member) {
	g.leave(m)
	g.hold(m, false)
	m.stop(taskWake)
	m.stop(taskReject)
	delete(g.members, m.uid)
}

// want asks for the member to be moved to the active queue, once the gang lets it. Members of a native gang are kube-scheduler's to wake.
func (g *Gang) want(m *member, at time.Time) {
	if !g.config.Native {
		g.repeat(m, taskWake, at)
	}
}

// fail ends the round if the members that have not failed cannot make up the quorum any more, and the
// release of which the member was a part if those that are left do not.
func (g *Gang) fail(cause Cause, uid types.UID, detail string, now time.Time) {
	g.failWith(Rollback{Cause: cause, Member: uid, Detail: detail}, now)
}

func (g *Gang) failWith(r Rollback, now time.Time) {
	possible := g.valid() && g.live() >= g.spec.MinMember
	broken := g.phase == Releasing && g.preparing() > 0 && g.releasedOrLater() < g.MinMember()
	if possible && (broken || g.round != nil && g.reachable() < g.spec.MinMember) {
		// For a member that is gone another may step in at once.
		g.rollback(r, r.Cause != CauseMembersLeft, now)
	}
	g.settle(now)
}

func (g *Gang) valid() bool { return g.spec != nil && g.spec.MinMember >= 1 }

// settle brings the phase in line with the counts and the time. It is called after every input.
func (g *Gang) settle(now time.Time) {
	was := g.phase
	g.settleDone(now)
	switch {
	case !g.valid():
		g.retreat(CauseGroupGone, "the PodGroup was deleted or became invalid", now)
		g.phase = Pending
	case g.live() < g.spec.MinMember:
		g.retreat(CauseMembersLeft, fmt.Sprintf("needs %d members, %d are left", g.spec.MinMember, g.live()), now)
		g.phase = Pending
	case g.bound() >= g.spec.MinMember:
		g.phase = Whole
	case g.releasedOrLater() >= g.spec.MinMember:
		g.phase = Releasing
		if g.committedOrLater() < g.spec.MinMember && !g.prepareBy.IsZero() && !now.Before(g.prepareBy) {
			g.rollback(Rollback{
				Cause: CauseNotPrepared,
				Detail: fmt.Sprintf("%d of %d members were ready to be bound %s after the gang was released",
					g.count[memberPrepared]+g.committedOrLater(), g.spec.MinMember, g.config.PrepareTimeout),
			}, true, now)
			g.phase = Backoff
		}
	case g.preparing() > 0:
		// The quorum was raised while the gang was on its way, or binds have failed.
		g.rollback(Rollback{
			Cause:  CauseNotPrepared,
			Detail: fmt.Sprintf("needs %d members, %d were released", g.spec.MinMember, g.releasedOrLater()),
		}, true, now)
		g.phase = Backoff
	case now.Before(g.until):
		g.phase = Backoff
	default:
		g.settleRound(now)
	}
	g.changed(was, now)
	g.settleRecovery(now)
}

// settleRound is settle for a gang that is neither let go nor kept away.
func (g *Gang) settleRound(now time.Time) {
	if g.round != nil {
		g.pauseForRehearsals(now)
		if g.round.firsts > 0 && !now.Before(g.round.restAt) {
			g.callRest(now)
		}
		switch {
		case g.reachable() < g.spec.MinMember:
			// The quorum was raised, and the others are not part of the round.
			g.rollback(Rollback{
				Cause:  CauseMembersLeft,
				Detail: fmt.Sprintf("needs %d members, %d are being scheduled", g.spec.MinMember, g.reachable()),
			}, false, now)
		case g.stalls() && !now.Before(g.round.stepAt.Add(stallLimit)):
			g.rollback(Rollback{
				Cause: CauseTimeout, Member: g.absent(),
				Detail: fmt.Sprintf("has not come to a scheduling cycle; %d of %d members had a node, and no other came for %s",
					g.count[memberWaiting]+g.releasedOrLater(), g.spec.MinMember, stallLimit),
			}, true, now)
			g.phase = Backoff
			return
		case g.round.paused.IsZero() && !now.Before(g.round.deadline):
			g.rollback(Rollback{
				Cause:  CauseTimeout,
				Detail: fmt.Sprintf("%d of %d members had a node after %s", g.count[memberWaiting]+g.releasedOrLater(), g.spec.MinMember, g.timeout()),
			}, true, now)
			g.phase = Backoff
			return
		}
	}
	switch waiting := g.count[memberWaiting]; {
	case waiting > 0 && g.round == nil && g.releasedOrLater()+waiting < g.spec.MinMember:
		// Members that were let go have been lost, and those that still wait are not enough.
		g.rollback(Rollback{
			Cause:  CauseNotPrepared,
			Detail: fmt.Sprintf("needs %d members, %d have a node", g.spec.MinMember, g.releasedOrLater()+waiting),
		}, true, now)
		g.phase = Backoff
	case waiting > 0:
		g.phase = Waiting
	case g.round != nil || g.lacksOnlyOne():
		g.phase = Gathering
	default:
		g.phase = Queued
	}
}

// stalls reports whether the round waits for nothing but members that have still to come, while others hold nodes for them.
func (g *Gang) stalls() bool { return g.round != nil && g.count[memberWaiting] > 0 && g.lacking() > 0 }

// absent returns the first member of the round that has not come to a cycle.
func (g *Gang) absent() (first types.UID) {
	for _, m := range g.members {
		if m.inRound && m.state == memberIdle && (first == "" || m.uid < first) {
			first = m.uid
		}
	}
	return first
}

// pauseForRehearsals stops the round's clock while nothing but rehearsals keeps the gang.
func (g *Gang) pauseForRehearsals(now time.Time) {
	r := g.round
	rehearses := g.lacking() <= 0 && !g.rehearsed()
	switch {
	case rehearses && r.paused.IsZero() && now.Before(r.deadline):
		r.paused = now
	case !rehearses && !r.paused.IsZero():
		r.deadline = r.deadline.Add(now.Sub(r.paused))
		r.paused = time.Time{}
	}
}

// changed does what entering a phase brings with it.
func (g *Gang) changed(was Phase, now time.Time) {
	if g.phase == Pending {
		g.readySince, g.until = time.Time{}, time.Time{}
		g.ours = false
	} else if g.readySince.IsZero() {
		g.readySince = now
	}
	if was == g.phase {
		return
	}
	if was == Whole && g.phase != Pending {
		g.readySince = now // for the replacements
	}
	switch g.phase {
	case Releasing, Whole:
		g.until = time.Time{}
		g.endRound()
		if was != Releasing {
			// Members that are not part of the quorum are scheduled like any pod from here on.
			g.wantIdle(now)
		}
		if g.phase == Whole {
			g.failures, g.gate.failures = 0, 0
			if g.ours {
				g.report.BecameWhole = true
				g.report.TimeToWhole = now.Sub(g.readySince)
				g.ours = false
			}
		}
	case Gathering:
		if g.round == nil {
			g.endRound() // the turn that it had
			g.reviveFailed()
			g.wantIdle(now)
		}
	case Queued:
		g.reviveFailed()
	case Pending, Backoff:
		g.endRound()
	case Waiting:
	}
}

// reviveFailed gives members that failed in an earlier round another chance.
func (g *Gang) reviveFailed() {
	if g.count[memberFailed] == 0 {
		return
	}
	for _, m := range g.members {
		if m.state == memberFailed {
			g.move(m, memberIdle)
		}
	}
}

func (g *Gang) wantIdle(now time.Time) {
	for _, m := range g.members {
		if (m.state == memberIdle || m.state == memberFailed) && !m.resting {
			g.want(m, now)
		}
	}
}

// retreat sends members that have a node back without a backoff: the gang waits for an event, not for time.
func (g *Gang) retreat(cause Cause, detail string, now time.Time) {
	if g.count[memberWaiting]+g.preparing() > 0 {
		g.rollback(Rollback{Cause: cause, Detail: detail}, false, now)
	}
}
