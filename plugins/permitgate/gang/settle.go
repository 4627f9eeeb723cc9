package gang

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// live is how many members exist for the quorum.
func (g *Gang) live() int {
	return g.count[memberIdle] + g.count[memberFailed] + g.count[memberWaiting] + g.letGo()
}

// settled is how many members are bound, or were until they succeeded.
func (g *Gang) settled() int { return g.count[memberBound] + g.count[memberDone] }

// preparing is how many members have been let go, and may still be sent back.
func (g *Gang) preparing() int { return g.count[memberReleased] + g.count[memberPrepared] }

// sure is how many members are bound, or their binds are on the way and nothing stops them.
func (g *Gang) sure() int { return g.count[memberCommitted] + g.settled() }

// letGo is how many members have been let go, or are past that.
func (g *Gang) letGo() int { return g.preparing() + g.sure() }

// reachable is how many members may still make up the quorum in this round.
func (g *Gang) reachable() int {
	return g.count[memberIdle] + g.count[memberWaiting] + g.letGo()
}

func (g *Gang) timeout() time.Duration {
	if g.spec != nil && g.spec.Timeout > 0 {
		return g.spec.Timeout
	}
	return g.config.Timeout
}

// move changes a member's state and keeps the counts.
func (g *Gang) move(m *member, to memberState) {
	if m.state < memberStates {
		g.count[m.state]--
	}
	if m.state == memberPrepared {
		g.departures++
	}
	if m.slot != nil && !to.mayHaveSlot() {
		g.setSlot(m, nil)
	}
	if m.slot != nil && m.state == memberIdle {
		g.planning.idle--
	}
	if m.slot != nil && to == memberIdle {
		g.planning.idle++
	}
	if to == memberCommitted || to == memberBound {
		m.bindFailed = false
	}
	m.state = to
	g.count[to]++
	if to != memberIdle && to != memberFailed {
		m.wanted = false
	}
}

func (g *Gang) forget(uid types.UID, m *member) {
	g.setSlot(m, nil)
	g.count[m.state]--
	delete(g.members, uid)
}

// want asks for the member to be moved to the active queue, once the phase lets it.
func (g *Gang) want(m *member, now time.Time) {
	m.wanted = true
	m.wake.start(now)
}

// fail ends the round if the members that have not failed cannot make up the quorum any more, and the
// release of which the member was a part if those that are left do not.
func (g *Gang) fail(cause Cause, uid types.UID, detail string, now time.Time) {
	inRound := g.phase == Gathering || g.phase == Waiting
	possible := g.valid() && g.live() >= g.spec.MinMember
	broken := g.phase == Releasing && g.preparing() > 0
	if possible && (broken && g.letGo() < g.spec.MinMember || inRound && g.reachable() < g.spec.MinMember) {
		g.rollback(Rollback{Cause: cause, Member: uid, Detail: detail}, true, now)
	}
	g.settle(now)
}

func (g *Gang) valid() bool { return g.spec != nil && g.spec.MinMember >= 1 }

// settle brings the phase in line with the counts and the time. It is called after every input.
func (g *Gang) settle(now time.Time) {
	was := g.phase
	switch {
	case !g.valid():
		g.retreat(CauseGroupGone, "the PodGroup was deleted or became invalid", now)
		g.phase = Pending
	case g.live() < g.spec.MinMember:
		g.retreat(CauseMembersLeft, fmt.Sprintf("needs %d members, %d are left", g.spec.MinMember, g.live()), now)
		g.phase = Pending
	case g.settled() >= g.spec.MinMember:
		g.phase = Whole
	case g.letGo() >= g.spec.MinMember:
		g.phase = Releasing
		if g.sure() < g.spec.MinMember && !g.prepareBy.IsZero() && !now.Before(g.prepareBy) {
			g.rollback(Rollback{
				Cause: CauseNotPrepared,
				Detail: fmt.Sprintf("%d of %d members were ready to be bound %s after the gang was let go",
					g.count[memberPrepared]+g.sure(), g.spec.MinMember, g.config.PrepareTimeout),
			}, true, now)
			g.phase = Backoff
		}
	case g.preparing() > 0:
		// The quorum was raised while the gang was on its way, or binds have failed.
		g.rollback(Rollback{
			Cause:  CauseNotPrepared,
			Detail: fmt.Sprintf("needs %d members, %d were let go", g.spec.MinMember, g.letGo()),
		}, true, now)
		g.phase = Backoff
	case now.Before(g.until):
		g.phase = Backoff
	default:
		if g.reachable() < g.spec.MinMember || was == Backoff || was == Pending {
			// Whoever failed did so in an earlier round, or the quorum was raised in this one.
			g.startRound(now)
		}
		if g.onTheClock() && !now.Before(g.deadline) {
			g.rollback(Rollback{
				Cause:  CauseTimeout,
				Detail: fmt.Sprintf("%d of %d members had a node after %s", g.count[memberWaiting]+g.letGo(), g.spec.MinMember, g.timeout()),
			}, true, now)
			g.phase = Backoff
			break
		}
		g.phase = Gathering
		if g.count[memberWaiting] > 0 {
			g.phase = Waiting
		}
	}
	g.changed(was, now)
	g.settlePlan(now)
	g.settleRecovery(now)
}

// onTheClock reports whether the round ends at its deadline: members wait, or hold slots.
func (g *Gang) onTheClock() bool { return g.count[memberWaiting] > 0 || g.planning.idle > 0 }

// changed does what entering a phase brings with it.
func (g *Gang) changed(was Phase, now time.Time) {
	if g.phase == Pending {
		g.readySince = time.Time{}
		g.until = time.Time{}
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
		if was != Releasing {
			// Whoever is not part of the quorum schedules like any pod from here on.
			g.wantIdle(now)
		}
		if g.phase == Whole {
			g.failures, g.hasty, g.early = 0, 0, false
			if g.ours {
				g.report.BecameWhole = true
				g.report.TimeToWhole = now.Sub(g.readySince)
				g.ours = false
			}
		}
	case Gathering, Waiting:
		if was == Releasing || was == Whole {
			g.deadline = now.Add(g.timeout())
			g.startRound(now)
		}
	case Pending, Backoff:
	}
}

// startRound gives every member another chance.
func (g *Gang) startRound(now time.Time) {
	g.roundStart = now
	for _, m := range g.members {
		if m.state == memberFailed {
			g.move(m, memberIdle)
		}
	}
	g.wantIdle(now)
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

// rollback sends every member back that has a node and may still lose it, and sets the backoff first when there is to be one.
func (g *Gang) rollback(r Rollback, backoff bool, now time.Time) {
	g.rolledBack = now
	g.lastCause, g.lastDetail = r.Cause, r.Detail
	if g.early {
		g.hasty++
	} else {
		g.hasty = 0
	}
	g.early = false
	if backoff {
		r.Backoff = g.nextBackoff()
		g.until = now.Add(r.Backoff)
		if r.Cause.capacity() && !g.roomAt.IsZero() && !g.roomAt.Before(g.roundStart) {
			// Room was made while the round ran, perhaps too late for a member that had been tried.
			g.retryAt(now)
			r.Backoff = g.until.Sub(now)
		}
	}
	rejectAt := now
	if !r.Cause.capacity() {
		rejectAt = now.Add(deletedPause)
	}
	for _, m := range g.members {
		m.wanted, m.bindFailed = false, false
		if m.going() {
			g.move(m, memberIdle)
			m.reject.start(rejectAt)
			r.Rejected++
		}
	}
	g.report.Rollback = &r
	if g.report.Rollbacks == nil {
		g.report.Rollbacks = map[Cause]int{}
	}
	g.report.Rollbacks[r.Cause]++
}

// nextBackoff doubles from InitialBackoff to MaxBackoff, less up to half of it by jitter.
func (g *Gang) nextBackoff() time.Duration {
	d := g.config.InitialBackoff
	for range g.failures {
		if d >= g.config.MaxBackoff/2 {
			d = g.config.MaxBackoff
			break
		}
		d *= 2
	}
	g.failures++
	return d - time.Duration(g.config.Jitter()*float64(d/2))
}
