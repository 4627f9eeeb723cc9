package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// probeInterval is how long a gang whose bind was refused waits before it rehearses that bind again. It doubles each
// time, up to probeIntervalLimit; a change of the policies starts it over.
const (
	probeInterval      = 250 * time.Millisecond
	probeIntervalLimit = 2 * time.Second
)

// Rehearsal names one rehearsal of a member's bind.
type Rehearsal struct {
	UID types.UID
	// Turn tells it from the rehearsals of other waits of the same member.
	Turn uint64
	// Probe is true for one of a member that does not wait: it was refused before, on the node that it had then.
	Probe bool
}

// rehearsal is how far the rehearsal of a member's bind is.
type rehearsal uint8

const (
	rehearsalDue rehearsal = iota
	rehearsalRuns
	rehearsalPassed
)

// SetRehearse says whether binds are to be rehearsed: whether members that wait are let go only when
// [Gang.Rehearsed] has said that their binds would be accepted.
func (g *Gang) SetRehearse(rehearse bool, now time.Time) {
	if g.rehearse != rehearse {
		g.rehearse = rehearse
		g.AdmissionChanged(now)
	}
}

// AdmissionChanged says that what decides about binds has changed: members that wait are rehearsed again, and a
// gang that was rolled back because a bind would be refused rehearses that bind at once.
func (g *Gang) AdmissionChanged(now time.Time) {
	if g.count[memberWaiting] > 0 {
		for _, m := range g.members {
			if m.state == memberWaiting {
				g.restage(m)
			}
		}
	}
	if g.phase == Backoff && g.last.Cause == CauseBindRefused {
		if !g.rehearse {
			g.until = now
		}
		g.probing = retry{at: now, first: probeInterval}
	}
	g.probe.start(now)
	g.settle(now)
}

// restage has the member's bind rehearsed from the beginning.
func (g *Gang) restage(m *member) {
	if m.state == memberWaiting && m.rehearsal == rehearsalPassed {
		g.passed--
	}
	g.turns++
	m.turn, m.rehearsal = g.turns, rehearsalDue
	if g.rehearse {
		g.due = append(g.due, Rehearsal{UID: m.uid, Turn: m.turn})
	}
}

// takeRehearsals returns the rehearsals that are to be begun.
func (g *Gang) takeRehearsals(now time.Time) []Rehearsal {
	due := g.due[:0:0]
	for _, r := range g.due {
		if m, known := g.members[r.UID]; known && g.rehearse && m.state == memberWaiting && m.turn == r.Turn && m.rehearsal == rehearsalDue {
			m.rehearsal = rehearsalRuns
			due = append(due, r)
		}
	}
	g.due = nil
	if g.probesBind() && g.probing.due(now) {
		g.probing.at = now.Add(min(pause(probeInterval, g.probing.tries-1), probeIntervalLimit))
		due = append(due, Rehearsal{UID: g.last.Member, Probe: true})
	}
	return due
}

// probesBind reports whether the gang rehearses, while it holds nothing, the bind that was refused.
func (g *Gang) probesBind() bool {
	if g.phase != Backoff || g.last.Cause != CauseBindRefused || !g.rehearse {
		return false
	}
	m, known := g.members[g.last.Member]
	return known && !m.holds
}

// rehearsed reports whether the member's rehearsal keeps it no longer.
func (g *Gang) rehearsed(m *member) bool { return !g.rehearse || m.rehearsal == rehearsalPassed }

// Rehearsing reports whether the result of a rehearsal is still of interest.
func (g *Gang) Rehearsing(r Rehearsal) bool {
	if r.Probe {
		return g.probesBind() && g.last.Member == r.UID
	}
	m, known := g.members[r.UID]
	return known && g.rehearse && m.state == memberWaiting && m.turn == r.Turn && m.rehearsal == rehearsalRuns
}

// Rehearsed gives the result of a rehearsal: refused is empty, or says why the bind would be refused. The
// member of a refused bind is sent back, and the gang with it when the quorum needs it.
func (g *Gang) Rehearsed(r Rehearsal, refused string, now time.Time) {
	if !g.Rehearsing(r) {
		return
	}
	m := g.members[r.UID]
	switch {
	case r.Probe && refused == "":
		g.until = now
		g.settle(now)
	case r.Probe:
	case refused == "":
		m.rehearsal = rehearsalPassed
		g.passed++
		g.probe.start(now)
		g.settle(now)
	default:
		g.move(m, memberFailed)
		g.repeat(m, taskReject, now)
		g.fail(CauseBindRefused, r.UID, refused, now)
	}
}
