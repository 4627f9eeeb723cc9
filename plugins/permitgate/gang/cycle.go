package gang

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The steps of a member's way to a node, in their order: Enqueue, Enter, Unschedulable or Permit, and Unreserved. What
// follows Permit is in release.go.

// unansweredLimit is how many steps without a result say that the member's cycles end where no extension point of the
// caller's is reached: three times in the queue, or once there, in a cycle, and in the queue again. Twice in the queue
// alone may come from another plugin that kept the member out of it after this gang had let it in.
const unansweredLimit = 3

// Enqueue says that the member is about to enter the scheduling queue, in its PreEnqueue, and returns why it may not,
// for a person to read. failed is true if its cycles have ended without a result, which ends the round that needs the
// member. A member whose cycles never reached [Gang.Enter] is let in even so: the plugin that refuses it there knows
// what may help it.
func (g *Gang) Enqueue(uid types.UID, now time.Time) (reason Reason, detail string, failed bool) {
	g.settle(now)
	if g.config.Native {
		reason, detail = g.enqueueNative(uid)
		return reason, detail, false
	}
	reason, detail = g.Refusal(uid)
	m, known := g.members[uid]
	switch {
	case !known:
	case reason != ReasonNone:
		m.unanswered = 0
		if reason != ReasonUnknown {
			m.resting = false // from here on it is for this gang to wake it
		}
	default:
		if m.unanswered++; m.unanswered >= unansweredLimit && (g.phase == Queued || m.inRound) {
			entered := m.entered
			g.cycleFailed(m, now)
			if entered {
				reason, detail = g.Refusal(uid)
			}
			return reason, detail, true
		}
	}
	return reason, detail, false
}

// Refusal returns why a member may not be in the scheduling queue or in a cycle, as of the last input.
func (g *Gang) Refusal(uid types.UID) (Reason, string) {
	if g.config.Native {
		return g.nativeRefusal(uid)
	}
	if reason, detail := g.BlockedBy(); reason != ReasonNone {
		return reason, detail
	}
	m, known := g.members[uid]
	switch {
	case !known || m.state == memberGone:
		return ReasonUnknown, "the pod has not been seen as a member yet"
	case g.letsIn(m):
		return ReasonNone, ""
	case g.round != nil && !m.inRound:
		return ReasonSpare, "waits until the quorum has been released"
	}
	return ReasonQueued, "waits until the gang is admitted"
}

// BlockedBy returns what keeps the gang's members out of the queue, and that in words, as of the last input.
func (g *Gang) BlockedBy() (Reason, string) {
	switch {
	case g.spec == nil:
		return ReasonNotFound, "the PodGroup does not exist"
	case g.spec.MinMember < 1:
		return ReasonInvalid, fmt.Sprintf("spec.minMember is %d, must be at least 1", g.spec.MinMember)
	case g.phase == Pending:
		detail := fmt.Sprintf("needs %d members, %d exist", g.MinMember(), g.live())
		if held := g.count[memberHeld]; held > 0 {
			detail += fmt.Sprintf(" and %d more are held back: they have scheduling gates, claims that do not exist, or another scheduler", held)
		}
		return ReasonTooFew, detail
	case g.phase == Backoff:
		// Not for how long: the words become a condition of the pods, and each change of them is a write.
		return ReasonBackoff, cmp.Or(g.last.ConditionMessage(), "backs off")
	}
	return ReasonNone, ""
}

// letsIn reports whether the gang lets a member into the queue now.
func (g *Gang) letsIn(m *member) bool {
	switch g.phase {
	case Releasing, Whole:
		return true
	case Gathering:
		if g.round == nil { // it lacks one member only
			return true
		}
	case Pending, Queued, Waiting, Backoff:
	}
	return m.letIn
}

// Enter says that the member is in a scheduling cycle, in its PreFilter, and returns why it does not belong there.
// scout is true if it is the scout: the caller answers with Gather or Refuse.
func (g *Gang) Enter(uid types.UID, now time.Time) (scout bool, reason Reason, detail string) {
	g.settle(now)
	reason, detail = g.Refusal(uid)
	m, known := g.members[uid]
	if known {
		g.stopTask(m, taskWake)
		m.resting, m.scouted = false, 0
	}
	if reason != ReasonNone {
		if known {
			m.noteResult()
		}
		return false, reason, detail
	}
	m.unanswered++
	m.entered = true
	if m.inRound {
		g.noteStep(now)
		g.wakeAt(m, now.Add(retryMax)) // in case its cycle ends without a result
	}
	m.sentBack = false
	if g.phase == Queued {
		g.scout.at = now.Add(retryMax) // while the proposal is made, no other scout is needed
		scout = true
	}
	return scout, ReasonNone, ""
}

// Unschedulable is called when a scheduling cycle found no node for the member; detail says why, and reason the same in
// words that do not change with every look. again says that the member is to be tried once more in this round. It
// reports whether the member may preempt, as any pod: the quorum does not depend on other members.
func (g *Gang) Unschedulable(uid types.UID, again bool, detail, reason string, now time.Time) (mayPreempt bool) {
	g.settle(now)
	m, known := g.members[uid]
	if known {
		m.noteResult()
	}
	if reason, _ := g.Refusal(uid); reason != ReasonNone {
		if known {
			m.sentBack = true
		}
		return false
	}
	g.stopTask(m, taskWake)
	switch g.phase {
	case Releasing, Whole:
		return true
	case Queued:
		// It was refused before it could scout.
		m.sentBack = true
		g.rollBack(Rollback{Cause: CauseUnschedulable, Member: uid, Detail: detail, Reason: reason}, now)
		g.settle(now)
	case Gathering, Waiting:
		if g.round == nil {
			return true
		}
		m.sentBack = true
		g.noteStep(now)
		if again {
			g.wakeAt(m, now.Add(requeueInterval))
			return false
		}
		g.failInRound(m, Rollback{Cause: CauseUnschedulable, Member: uid, Detail: detail, Reason: reason}, now)
	case Pending, Backoff:
	}
	return false
}

// Permit is called with the member's Permit: it has been given this node. wait is true when it must wait
// there for the quorum; a reason other than ReasonNone means that it must be rejected.
func (g *Gang) Permit(uid types.UID, node string, now time.Time) (wait bool, reason Reason, detail string) {
	g.settle(now)
	if reason, detail := g.Refusal(uid); reason != ReasonNone {
		return false, reason, detail
	}
	m := g.members[uid]
	m.node = node
	g.stopTask(m, taskWake)
	m.noteResult()
	if m.state == memberBound {
		// Bound behind this scheduler's back: there is nothing to wait for, and its own bind will say so.
		return false, ReasonNone, ""
	}
	if g.releasedOrLater() >= g.MinMember() || g.lacksOnlyOne() && g.allowed(func(other *Gang) bool { return other == g || other.quorumReleased() }) {
		g.release(m, now)
		g.settle(now)
		return false, ReasonNone, ""
	}
	if g.round == nil && g.config.Native {
		g.beginNative(now)
	}
	if g.round == nil {
		return false, ReasonQueued, "waits until the gang is admitted"
	}
	if g.count[memberWaiting] == 0 {
		g.round.deadline = now.Add(g.Timeout())
	}
	g.noteStep(now)
	g.move(m, memberWaiting)
	g.setHolds(m, true)
	g.needRehearsal(m)
	g.noteFirstTried(m, now)
	g.probe.start(now)
	g.settle(now)
	return true, ReasonNone, ""
}

// lacksOnlyOne reports whether one more member completes the quorum while none waits: that member
// needs no other's consent, and no other needs its.
func (g *Gang) lacksOnlyOne() bool {
	return g.releasedOrLater() == g.MinMember()-1 && g.count[memberWaiting] == 0 && (g.MinMember() > 1 || !g.spec.Awaits)
}

// lacksOneBind reports whether the bind of one more member makes the gang whole.
func (g *Gang) lacksOneBind() bool { return g.valid() && g.committedOrLater() == g.MinMember()-1 }

// Unreserved is called with the member's Unreserve: whatever it held is free again.
func (g *Gang) Unreserved(uid types.UID, now time.Time) {
	m, known := g.members[uid]
	if !known {
		return
	}
	held := m.holds
	m.sentBack = true
	m.noteResult()
	g.setHolds(m, false)
	g.stopTask(m, taskReject)
	bindFailed := m.state == memberCommitted
	if g.config.Native && m.state != memberGone {
		defer func() { g.cameBack(m, bindFailed && g.lacksOneBind(), now) }() // what follows may be a rollback
	}
	switch m.state {
	case memberGone:
		g.forget(m)
	case memberWaiting:
		if g.phase == Releasing || g.phase == Whole {
			// It was sent back just as the quorum came in: now it may go its own way.
			g.move(m, memberIdle)
			g.wakeAt(m, now)
			break
		}
		g.failInRound(m, Rollback{Cause: CauseRefused, Member: uid, Detail: "a waiting member was refused"}, now)
		return
	case memberReleased, memberPrepared:
		m.resting = true
		g.move(m, memberIdle)
		g.rollBackIfShort(Rollback{Cause: CauseNotPrepared, Member: uid, Detail: "a released member was preempted, or could not be prepared for its bind"}, now)
		return
	case memberCommitted:
		// The bind failed. The framework retries the member; those that were committed with it stay so.
		m.resting = true
		if m.failedOn != m.node {
			g.keptNodes[uid] = m.node
		}
		m.failedOn = m.node
		g.report.BindFailed = true
		g.move(m, memberIdle)
		switch {
		case !g.AnyPlaced(): // the next round may fail as soon
			g.rollBack(Rollback{Cause: CauseBindRefused, Member: uid, Detail: "the binds of all members have failed"}, now)
		case g.lacksOneBind():
			g.wakeAt(m, now.Add(bindRetry))
		}
	case memberIdle:
		if g.config.Native && !held && g.round == nil && !g.gate.rolledBack {
			g.noteRefused(m, now)
			break
		}
		if held || g.round == nil || !m.inRound {
			// Sent back by a rollback: in the next round it starts like the others.
			if g.letsIn(m) && !m.resting {
				g.wakeAt(m, now)
			}
			break
		}
		g.failInRound(m, refusedAfterPlacement(m), now)
		return
	case memberHeld, memberBound, memberSucceeded:
	}
	g.settle(now)
}

// refusedAfterPlacement tells of a member that another plugin refused when it had a node already.
func refusedAfterPlacement(m *member) Rollback {
	return Rollback{Cause: CauseRefused, Member: m.uid, Detail: "a member was refused after it had been given a node"}
}

// noteResult notes that a cycle of the member has had a result.
func (m *member) noteResult() { m.unanswered, m.entered = 0, false }

// cycleFailed is what follows when a member's cycles end without a result.
func (g *Gang) cycleFailed(m *member, now time.Time) {
	m.noteResult()
	g.stopTask(m, taskWake)
	r := Rollback{Cause: CauseCycleFailed, Member: m.uid, Detail: "its scheduling cycle ends without a result, by a refusal or an error of another plugin"}
	switch {
	case m.inRound:
		g.failInRound(m, r, now)
	case g.phase == Queued && g.live() <= g.MinMember():
		g.rollBack(r, now)
		g.settle(now)
	}
}
