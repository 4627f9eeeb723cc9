package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// gate keeps the members of a native gang out of the queue.
type gate struct {
	// closed: no member may enter the queue; rolledBack: nor take a node, since the gang's round has failed.
	closed, rolledBack bool
	// unasked is true once it has opened with no member to activate: a pod that was kept out before it was known as a
	// member is asked for as soon as it is.
	unasked bool
	// openAt is before when it does not open again.
	openAt time.Time
	// awaits is true until a cycle has had all members that have lost their nodes; probe spaces the attempts.
	awaits bool
	probe  retry
	// failures counts how often members have come back since the gang was whole last, but for rollbacks, which have a
	// backoff.
	failures int
}

// closeGate keeps the members out of the queue, and has the next cycle wait for all that have lost their nodes.
func (g *Gang) closeGate(now time.Time) {
	g.gate.closed, g.gate.awaits = true, true
	g.gate.probe.start(now)
}

// noteAway notes that a member has lost its node while the gate is closed. That is what it is closed for.
func (*Gang) noteAway(*member) {}

// noteBack notes that a member is in the queue. Whether all are shows in their cycle.
func (*Gang) noteBack(types.UID) {}

// AllBack reports whether a cycle with so many members has all that have no node. Otherwise it is to end before one is
// tried, and the gate closes for a moment.
func (g *Gang) AllBack(inCycle int) bool {
	if !g.gate.awaits {
		return true
	}
	// Another plugin may keep a member from its cycle.
	if g.count[memberIdle] <= inCycle || !g.valid() || g.gate.probe.tries > maxWakes {
		g.gate.awaits = false
		return true
	}
	g.gate.closed = true
	return false
}

// reopen opens the gate when all members have given back their nodes and the backoff is over. It returns whom to
// activate, and when to ask again.
func (g *Gang) reopen(now time.Time) (activate []types.UID, next time.Time) {
	switch {
	case !g.gate.closed && g.gate.unasked:
		if first := g.firstUnbound(); first != "" {
			g.gate.unasked = false
			activate = []types.UID{first}
		}
		return activate, time.Time{}
	case !g.gate.closed || g.holding > 0 || g.phase == Backoff:
		return nil, time.Time{}
	case now.Before(g.gate.openAt):
		return nil, g.gate.openAt
	case !g.gate.probe.takeDue(now):
		return nil, g.gate.probe.at
	}
	g.openGate()
	first := g.firstUnbound()
	if g.gate.unasked = first == ""; !g.gate.unasked {
		activate = []types.UID{first}
	}
	return activate, time.Time{}
}

// firstUnbound returns a member without a node, always the same one of several.
func (g *Gang) firstUnbound() (first types.UID) {
	for _, m := range g.members {
		if m.state == memberIdle && (first == "" || m.uid < first) {
			first = m.uid
		}
	}
	return first
}
