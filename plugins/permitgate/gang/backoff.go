package gang

import (
	"math"
	"time"
)

// madeUpAtMost is how long a backoff is at most that makes up for several rounds.
const madeUpAtMost = time.Minute

// rollBack ends a round or a release with a backoff of at least ten times as long as it took or held something.
func (g *Gang) rollBack(r Rollback, now time.Time) {
	took := g.heldFor(now)
	g.pauseLimit = math.MaxInt64
	if g.round != nil {
		took = max(took, min(now.Sub(g.round.since), g.Timeout()))
		g.pauseLimit = max(doubled(g.config.MaxBackoff, g.lostRounds, math.MaxInt64), roundPause*now.Sub(g.round.stepAt))
		if g.holding > 0 {
			g.lostRounds++
		}
	}
	pause := g.pauseAfter(took)
	g.rollBackFor(r, pause, pause, now)
}

// pauseAfter is how long no other round begins after one that took or held something for a time: ten times as long. As
// long as members take steps, how long a round takes says how busy the scheduler is, and one that is lost may be bad
// luck. For that time the first one since the gang was whole has it stay away for MaxBackoff at most, and each further
// one for twice as long: a gang that loses again and again holds what it does not use for a tenth of the time.
func (g *Gang) pauseAfter(took time.Duration) time.Duration {
	return min(roundPause*took, g.pauseLimit)
}

// heldFor returns for how long members have held something without a break; 0 if none does.
func (g *Gang) heldFor(now time.Time) time.Duration {
	if g.heldSince.IsZero() {
		return 0
	}
	return now.Sub(g.heldSince)
}

// settleHolding notes since when members hold something. When the last has given it back after a rollback, the pause is
// that for all of this time.
func (g *Gang) settleHolding(now time.Time) {
	switch {
	case g.holding > 0 && g.heldSince.IsZero():
		g.heldSince = now
	case g.holding == 0:
		held := g.heldFor(now)
		g.heldSince = time.Time{}
		if g.phase == Backoff && held > 0 {
			g.notBefore = later(g.notBefore, now.Add(g.pauseAfter(held)))
			g.backoffUntil = later(g.backoffUntil, g.notBefore)
			g.last.Backoff = g.backoffUntil.Sub(now)
		}
	}
}

// rollBackFor sends members back and begins a backoff of at least a time, which freed room does not end before pause is
// over.
func (g *Gang) rollBackFor(r Rollback, pause, atLeast time.Duration, now time.Time) {
	g.backoffSince, g.notBefore = now, now.Add(pause)
	backoff := g.nextBackoff()
	backoff = max(backoff, min(time.Duration(r.Rounds)*backoff, madeUpAtMost))
	g.backoffUntil = now.Add(max(backoff, atLeast))
	if r.Cause == CauseNodeGone || r.Cause.Capacity() && g.round != nil && g.changedAt.After(g.round.since) {
		// The next round is for other nodes, or something changed while the round ran, perhaps too late for a member
		// that had been tried.
		g.backoffUntil = g.notBefore
	}
	r.Backoff = g.backoffUntil.Sub(now)
	g.sendBack(r, now)
}

// sendBack ends a round without a backoff: it sends every member back that has a node and may still lose it.
func (g *Gang) sendBack(r Rollback, now time.Time) {
	rejectAt := now
	if !r.Cause.Capacity() {
		rejectAt = now.Add(deletedPause)
	}
	g.endRound()
	clear(g.keptNodes)
	for _, m := range g.members {
		g.stopTask(m, taskWake)
		if m.mayBeSentBack() {
			g.move(m, memberIdle)
			g.startTask(m, taskReject, rejectAt)
			r.Rejected++
		}
	}
	if g.config.Native {
		g.gate.rolledBack, g.gate.openAt = true, time.Time{}
		g.closeGate(now)
	}
	g.last = r
	g.report.Rollback, g.report.Rollbacks = &r, append(g.report.Rollbacks, r.Cause)
}

// nextBackoff doubles from InitialBackoff to MaxBackoff, less up to half of it by jitter.
func (g *Gang) nextBackoff() time.Duration {
	d := g.grown(g.config.InitialBackoff, g.failures)
	g.failures++
	return d - time.Duration(g.config.Jitter()*float64(d/2))
}

// grown doubles d for each failure before the present one, up to MaxBackoff.
func (g *Gang) grown(d time.Duration, failures int) time.Duration {
	return doubled(d, failures, g.config.MaxBackoff)
}

// doubled doubles d so many times, up to a limit.
func doubled(d time.Duration, times int, limit time.Duration) time.Duration {
	for range times {
		if d >= limit/2 {
			return limit
		}
		d *= 2
	}
	return d
}

// RoomFreed says that something in the cluster has changed that may help a gang that lacks room. Its backoff ends, or
// will when the pause after its last round is over. What gangs give back when they are rolled back is not meant: gangs
// that do not fit would wake themselves and each other for ever.
func (g *Gang) RoomFreed(now time.Time) {
	g.changedAt = now
	if g.last.Cause.Capacity() {
		g.endBackoff(g.notBefore, now)
	}
	g.settle(now)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// RetryAt returns when the present backoff ends.
func (g *Gang) RetryAt() time.Time { return g.backoffUntil }

// RetryAfterPause ends the backoff of a round that failed when the pause after it is over, for another that is not like
// it.
func (g *Gang) RetryAfterPause(now time.Time) {
	g.endBackoff(g.notBefore, now)
	g.settle(now)
}

// Changed says that something about the gang itself has changed, its members above all: whatever it was refused for, it
// may fit now. Its backoff ends as by [Gang.RoomFreed], or after MaxBackoff.
func (g *Gang) Changed(now time.Time) {
	g.changes++
	g.changedAt = now
	at := g.backoffSince.Add(g.config.MaxBackoff)
	if g.notBefore.Before(at) {
		at = g.notBefore
	}
	g.endBackoff(at, now)
	g.settle(now)
}

// Changes counts the calls of [Gang.Changed]. A plan that was made at another count may lack a member.
func (g *Gang) Changes() int { return g.changes }

// endBackoff ends a backoff at a time, or at once when that has passed.
func (g *Gang) endBackoff(at, now time.Time) {
	if g.phase != Backoff {
		return
	}
	if at.Before(now) {
		at = now
	}
	if at.Before(g.backoffUntil) {
		g.backoffUntil = at
	}
}
