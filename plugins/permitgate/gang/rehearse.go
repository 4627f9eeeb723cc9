package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Rehearsal names one rehearsal of a member's bind.
type Rehearsal struct {
	UID types.UID
	// Turn tells it from the rehearsals of other waits of the same member.
	Turn uint64
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

// AdmissionChanged says that what decides about binds has changed: whoever waits is rehearsed again, and a
// gang that was rolled back because a bind would be refused starts its next round at once, or RoomPause
// after the rollback when that is later.
func (g *Gang) AdmissionChanged(now time.Time) {
	for _, m := range g.members {
		if m.state == memberWaiting {
			g.restage(m)
		}
	}
	if g.phase == Backoff && g.lastCause == CauseBindRefused {
		g.retryAt(now)
	}
	g.probe.start(now)
	g.settle(now)
}

// restage has the member's bind rehearsed anew.
func (g *Gang) restage(m *member) {
	g.turns++
	m.turn, m.rehearsal = g.turns, rehearsalDue
}

// rehearsed reports whether the member's rehearsal keeps it no longer.
func (g *Gang) rehearsed(m *member) bool { return !g.rehearse || m.rehearsal == rehearsalPassed }

// Rehearsing reports whether the result of a rehearsal is still of interest.
func (g *Gang) Rehearsing(r Rehearsal) bool {
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
	if refused == "" {
		m.rehearsal = rehearsalPassed
		g.probe.start(now)
		g.settle(now)
		return
	}
	g.move(m, memberFailed)
	m.reject.start(now)
	g.fail(CauseBindRefused, r.UID, refused, now)
}
