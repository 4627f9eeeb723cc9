package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A native gang ([Config.Native]) is placed by cycles of the whole group, which are kube-scheduler's. What begins here
// is a round with the first member that has a node. Members that have lost theirs come back to the queue one by one,
// without a backoff, while their siblings still count as placed for kube-scheduler. So the queue is closed to the gang
// from then on, until all of them are back in it.

// beginNative begins a round of all members that have no node.
func (g *Gang) beginNative(now time.Time) {
	g.rounds++
	clear(g.rehearsals)
	g.round = &round{id: g.rounds, since: now, deadline: now.Add(g.Timeout())}
	g.noteStep(now)
	for _, m := range g.members {
		if m.state == memberIdle && !m.refused {
			m.inRound = true
			g.round.idle++
		}
	}
}

// noteRefused notes that a member has failed before its gang's round began, and rolls the gang back if the others are
// too few for the quorum.
func (g *Gang) noteRefused(m *member, now time.Time) {
	m.refused = true
	able := 0
	for _, other := range g.members {
		if other.state == memberIdle && !other.refused {
			able++
		}
	}
	if g.valid() && g.live() >= g.MinMember() && able+g.releasedOrLater() < g.MinMember() {
		g.rollBack(refusedAfterPlacement(m), now)
	}
}

// openGate lets the members into the queue again. Those that have failed take part in the round again, if it still goes
// on.
func (g *Gang) openGate() {
	for _, m := range g.members {
		if m.refused && m.state == memberIdle && !m.inRound && g.round != nil {
			m.inRound = true
			g.round.idle++
		}
		m.refused = false
	}
	g.gate.closed, g.gate.rolledBack = false, false
}

// cameBack closes the gate after a member has lost its node. Without a rollback, a pause grows with each time, but for
// a member whose bind alone the gang lacks.
func (g *Gang) cameBack(m *member, lacksBind bool, now time.Time) {
	if g.gate.closed {
		g.noteAway(m)
		return
	}
	if lacksBind {
		g.gate.openAt = now.Add(bindRetry)
	} else {
		g.gate.openAt = now.Add(g.grown(g.config.InitialBackoff, g.gate.failures))
		g.gate.failures++
	}
	g.closeGate(now)
}

// enqueueNative is [Gang.Enqueue] for a member of a native gang. Whether there are enough members for the quorum is
// kube-scheduler's to say; so is what becomes of a pod that is no member any more.
func (g *Gang) enqueueNative(uid types.UID) (Reason, string) {
	g.noteBack(uid)
	if g.gate.closed {
		return ReasonBackoff, g.whyClosed()
	}
	return ReasonNone, ""
}

// Tried says that a member of a native gang is in a cycle of its group: from here on a nomination is that of another
// attempt.
func (g *Gang) Tried(uid types.UID) {
	if m, known := g.members[uid]; known {
		m.sentBack = false
	}
}

// CountRefusal says that a cycle of a native gang has been refused, which placed none: it is counted as a rollback.
func (g *Gang) CountRefusal(cause Cause) { g.report.Rollbacks = append(g.report.Rollbacks, cause) }

func (g *Gang) whyClosed() string {
	if g.gate.rolledBack {
		return g.last.ConditionMessage()
	}
	return "a member has lost its node"
}

// nativeRefusal is [Gang.Refusal] for a member of a native gang that has a node.
func (g *Gang) nativeRefusal(uid types.UID) (Reason, string) {
	m, known := g.members[uid]
	switch reason, detail := g.BlockedBy(); {
	case reason != ReasonNone:
		return reason, detail
	case !known || m.state == memberGone:
		return ReasonUnknown, "the pod has not been seen as a member yet"
	case g.gate.rolledBack:
		return ReasonBackoff, g.last.ConditionMessage()
	}
	return ReasonNone, ""
}

// Closed reports whether the members of a native gang are kept out of the queue.
func (g *Gang) Closed() bool { return g.gate.closed }

// RolledBack reports whether a gang has been rolled back, and its members may not be scheduled yet.
func (g *Gang) RolledBack() bool { return g.phase == Backoff || g.gate.closed && g.gate.rolledBack }
