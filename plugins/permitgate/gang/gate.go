package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// kube-scheduler asks all members of a group that are in its queue whether they may enter, also when one may not. So
// the gate sees in two steps who is back: see reopen.

// gate keeps the members of a native gang out of the queue.
type gate struct {
	// closed: no member may enter the queue; rolledBack: nor take a node, since the gang's round has failed.
	closed, rolledBack bool
	// unasked is true once it has opened with no member to activate: a pod that was kept out before it was known as a
	// member is asked for as soon as it is.
	unasked bool
	// openAt is before when it does not open again.
	openAt time.Time
	// away are members that have not been seen in the queue since it was closed; probe spaces the activations that show
	// who is back.
	away  map[types.UID]struct{}
	probe retry
	// failures counts how often members have come back since the gang was whole last, but for rollbacks, which have a
	// backoff.
	failures int
}

// closeGate keeps the members out of the queue until all that have no node have been seen there.
func (g *Gang) closeGate(now time.Time) {
	g.gate.closed = true
	g.gate.probe.start(now)
	g.gate.away = map[types.UID]struct{}{}
	for _, m := range g.members {
		if m.state == memberIdle {
			g.noteAway(m)
		}
	}
}

// noteAway notes that a member has lost its node, and has not been seen in the queue yet.
func (g *Gang) noteAway(m *member) { g.gate.away[m.uid] = struct{}{} }

// noteBack notes that a member is in the queue, unless it has not given back its node yet.
func (g *Gang) noteBack(uid types.UID) {
	if m, known := g.members[uid]; known && !m.holds {
		delete(g.gate.away, uid)
	}
}

// reopen opens the gate in two steps. An activation of one member has kube-scheduler ask for all that are in the queue;
// when all have been seen, the gate is open and another activation lets them in. It returns whom to activate, and when
// to ask again.
func (g *Gang) reopen(now time.Time) (activate []types.UID, next time.Time) {
	switch {
	case !g.gate.closed && g.gate.unasked:
		if first, _ := g.firstUnbound(); first != "" {
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
	first, away := g.firstUnbound()
	if !away || !g.valid() || g.gate.probe.tries > maxWakes { // another plugin may keep a member from being seen
		g.openGate()
	}
	if first != "" {
		activate = []types.UID{first}
	}
	g.gate.unasked = !g.gate.closed && first == ""
	if g.gate.closed {
		next = g.gate.probe.at
	}
	return activate, next
}

// firstUnbound returns a member without a node, always the same one of several, and whether any has not been seen in
// the queue.
func (g *Gang) firstUnbound() (first types.UID, away bool) {
	for _, m := range g.members {
		if m.state != memberIdle {
			continue
		}
		_, missing := g.gate.away[m.uid]
		away = away || missing
		if first == "" || m.uid < first {
			first = m.uid
		}
	}
	return first, away
}
