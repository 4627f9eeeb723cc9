package gang

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// live is how many members exist for the quorum.
func (g *Gang) live() int {
	return g.count[memberIdle] + g.count[memberWaiting] + g.releasedOrLater()
}

// succeededGrace is how long a gang with members that have succeeded, and with new ones that have no node, waits for
// more new ones: these may be the next wave of a Job that has more completions than parallelism, of which the succeeded
// ones are no part.
const succeededGrace = 5 * time.Second

// succeeded is how many of the members that have succeeded count: as many as the others lack of the quorum, once no
// more are awaited.
func (g *Gang) succeeded() int {
	if !g.countSucceeded {
		return 0
	}
	exist := g.count[memberIdle] + g.count[memberWaiting] + g.preparing() + g.count[memberCommitted] + g.count[memberBound]
	return min(g.count[memberSucceeded], max(0, g.MinMember()-exist))
}

// settleSucceeded decides whether members that have succeeded count now.
func (g *Gang) settleSucceeded(now time.Time) {
	g.countSucceeded = g.count[memberIdle] == 0 || !now.Before(g.countSucceededAt())
}

// countSucceededAt is when members that have succeeded count although others have no node yet.
func (g *Gang) countSucceededAt() time.Time { return g.arrivedAt.Add(succeededGrace) }

// bound is how many members are bound, or were until they succeeded.
func (g *Gang) bound() int { return g.count[memberBound] + g.succeeded() }

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

// Timeout is how long the first waiting member waits for the quorum.
func (g *Gang) Timeout() time.Duration {
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
		m.bindRefused = false
		delete(g.keptNodes, m.uid)
	}
	m.state = to
	g.count[to]++
	if to == memberIdle && m.inRound {
		g.round.idle++
	}
	if to != memberIdle {
		g.stopTask(m, taskWake)
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

// setHolds notes whether a member holds something that its rejection would free.
func (g *Gang) setHolds(m *member, holds bool) {
	switch {
	case holds && !m.holds:
		g.holding++
	case !holds && m.holds:
		g.holding--
	}
	m.holds = holds
}

// forget drops a member.
func (g *Gang) forget(m *member) {
	g.leave(m)
	g.setHolds(m, false)
	g.stopTask(m, taskWake)
	g.stopTask(m, taskReject)
	delete(g.members, m.uid)
	delete(g.keptNodes, m.uid)
}

// wakeAt asks for the member to be moved to the active queue, once the gang lets it. Members of a native gang are
// kube-scheduler's to wake.
func (g *Gang) wakeAt(m *member, at time.Time) {
	if !g.config.Native {
		g.startTask(m, taskWake, at)
	}
}

// rollBackIfShort is called when a member has failed. It ends the round or the release that is short now.
func (g *Gang) rollBackIfShort(r Rollback, now time.Time) {
	if g.short() {
		g.rollBack(r, now)
	}
	g.settle(now)
}

// short reports whether a member has failed without which the others of the round cannot make up the quorum any more,
// or without which those that are left of a release do not.
func (g *Gang) short() bool {
	possible := g.valid() && g.live() >= g.MinMember()
	broken := g.phase == Releasing && (g.preparing() > 0 || !g.AnyPlaced()) && g.releasedOrLater() < g.MinMember()
	return possible && (broken || g.round != nil && g.reachable() < g.MinMember())
}

func (g *Gang) valid() bool { return g.spec != nil && g.spec.MinMember >= 1 }

// settle brings the phase in line with the counts and the time. It is called after every input.
func (g *Gang) settle(now time.Time) {
	before := g.phase
	g.settleRunning()
	g.settleSucceeded(now)
	switch {
	case !g.valid():
		g.sendBackPlaced(CauseGroupGone, "the PodGroup was deleted or became invalid", now)
		g.phase = Pending
	case g.live() < g.MinMember():
		g.sendBackPlaced(CauseMembersLeft, fmt.Sprintf("needs %d members, %d are left", g.MinMember(), g.live()), now)
		g.phase = Pending
	case g.lost():
		g.rollBack(Rollback{Cause: CauseOtherGroup, Detail: "other groups of its composite group have been sent back, without which it is not to be bound"}, now)
		g.phase = Backoff
	case g.bound() >= g.MinMember():
		g.phase = Whole
	case g.releasedOrLater() >= g.MinMember():
		g.phase = Releasing
		if g.committedOrLater() < g.MinMember() && !now.Before(g.prepareBy) {
			g.rollBack(Rollback{
				Cause: CauseNotPrepared,
				Detail: fmt.Sprintf("%d of %d members were ready to be bound %s after the gang was released",
					g.count[memberPrepared]+g.committedOrLater(), g.MinMember(), g.config.PrepareTimeout),
			}, now)
			g.phase = Backoff
		}
	case g.preparing() > 0:
		// The quorum was raised while the gang was on its way, or binds have failed.
		g.rollBack(Rollback{
			Cause:  CauseNotPrepared,
			Detail: fmt.Sprintf("needs %d members, %d were released", g.MinMember(), g.releasedOrLater()),
		}, now)
		g.phase = Backoff
	case now.Before(g.backoffUntil):
		g.phase = Backoff
	default:
		g.settleRound(now)
	}
	g.enterPhase(before, now)
	g.settleHolding(now)
	g.settleRecovery(now)
}

// settleRunning notes whether the gang runs.
func (g *Gang) settleRunning() {
	switch {
	case g.count[memberBound] == 0:
		g.running = false
	case g.count[memberWaiting]+g.preparing()+g.count[memberCommitted] == 0:
		g.running = true
	}
}

// settleRound is settle for a gang that is neither released nor kept away.
func (g *Gang) settleRound(now time.Time) {
	if g.round != nil {
		if len(g.round.firsts) > 0 && !now.Before(g.round.restAt) {
			g.letRestIn(now)
		}
		switch {
		case g.reachable() < g.MinMember():
			// The quorum was raised, and the others are not part of the round.
			g.sendBack(Rollback{
				Cause:  CauseMembersLeft,
				Detail: fmt.Sprintf("needs %d members, %d are being scheduled", g.MinMember(), g.reachable()),
			}, now)
		case g.hasStalled(now):
			g.rollBack(Rollback{
				Cause: CauseTimeout, Member: g.firstAbsent(),
				Detail: fmt.Sprintf("has not come to a scheduling cycle; %d of %d members had a node, and no other came for %s",
					g.count[memberWaiting]+g.releasedOrLater(), g.MinMember(), now.Sub(g.round.stepAt)),
			}, now)
			g.phase = Backoff
			return
		case !g.rehearsing() && !now.Before(g.round.deadline):
			g.rollBack(Rollback{
				Cause:  CauseTimeout,
				Detail: fmt.Sprintf("%d of %d members had a node after %s", g.count[memberWaiting]+g.releasedOrLater(), g.MinMember(), g.Timeout()),
			}, now)
			g.phase = Backoff
			return
		}
	}
	switch waiting := g.count[memberWaiting]; {
	case waiting > 0 && g.round == nil && g.releasedOrLater()+waiting < g.MinMember():
		// Members that were released have been lost, and those that still wait are not enough.
		g.rollBack(Rollback{
			Cause:  CauseNotPrepared,
			Detail: fmt.Sprintf("needs %d members, %d have a node", g.MinMember(), g.releasedOrLater()+waiting),
		}, now)
		g.phase = Backoff
	case waiting > 0:
		g.phase = Waiting
	case g.round != nil || g.lacksOnlyOne():
		g.phase = Gathering
	default:
		g.phase = Queued
	}
}

// stalls reports whether the round waits only for members that have still to come, while others hold nodes for them.
func (g *Gang) stalls() bool { return g.round != nil && g.count[memberWaiting] > 0 && g.Lacking() > 0 }

// hasStalled reports whether the round goes on no more. That a member does not come shows by the scheduling cycles that
// others have meanwhile, since a cycle may take long, and so may what follows it. Where there are none, no other pod
// wants what the members hold.
func (g *Gang) hasStalled(now time.Time) bool {
	if !g.stalls() || now.Before(g.round.stepAt.Add(stallLimit)) {
		return false
	}
	if !now.Before(g.round.stepAt.Add(silenceLimit)) {
		return true
	}
	if g.cycles()-g.round.stepCycles < stallCycles {
		return false
	}
	for _, m := range g.members {
		if m.inRound && m.entered && m.state == memberIdle { // it is in its cycle, or that has ended elsewhere
			return false
		}
	}
	return true
}

// noteStep notes that a member of the round has made a step.
func (g *Gang) noteStep(now time.Time) { g.round.stepAt, g.round.stepCycles = now, g.cycles() }

// cycles counts the scheduling cycles of all pods.
func (g *Gang) cycles() int64 {
	if g.config.Cycles == nil {
		return 0
	}
	return g.config.Cycles()
}

// firstAbsent returns the first member of the round that has not come to a cycle.
func (g *Gang) firstAbsent() (first types.UID) {
	for _, m := range g.members {
		if m.inRound && m.state == memberIdle && (first == "" || m.uid < first) {
			first = m.uid
		}
	}
	return first
}

// enterPhase does what entering a phase brings with it.
func (g *Gang) enterPhase(before Phase, now time.Time) {
	if g.phase == Pending {
		g.readySince, g.backoffUntil = time.Time{}, time.Time{}
		g.releasedHere = false
	} else if g.readySince.IsZero() {
		g.readySince = now
	}
	if before == g.phase {
		return
	}
	if before == Whole && g.phase != Pending {
		g.readySince = now // for the replacements
	}
	switch g.phase {
	case Releasing, Whole:
		g.backoffUntil = time.Time{}
		g.endRound()
		if before != Releasing {
			// Members that are not part of the quorum are scheduled like any pod from here on.
			g.wakeIdle(now)
		}
		if g.phase == Whole {
			g.failures, g.lostRounds, g.gate.failures = 0, 0, 0
			g.last = Rollback{}
			if g.releasedHere {
				g.report.BecameWhole = true
				g.report.TimeToWhole = now.Sub(g.readySince)
				g.releasedHere = false
			}
		}
	case Gathering:
		if g.round == nil {
			g.endRound() // if it was admitted
			g.wakeIdle(now)
		}
	case Pending:
		g.pendingSince = now
		g.endRound()
	case Backoff:
		g.endRound()
	case Queued, Waiting:
	}
}

func (g *Gang) wakeIdle(now time.Time) {
	for _, m := range g.members {
		if m.state == memberIdle && !m.resting {
			g.wakeAt(m, now)
		}
	}
}

// sendBackPlaced sends members back if any has a node, without a backoff: the gang waits for an event, not for time.
func (g *Gang) sendBackPlaced(cause Cause, detail string, now time.Time) {
	if g.count[memberWaiting]+g.preparing() > 0 {
		g.sendBack(Rollback{Cause: cause, Detail: detail}, now)
	}
}
