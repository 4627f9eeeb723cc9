package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Rehearsal names one rehearsal of a member's bind.
type Rehearsal struct {
	UID types.UID
	// Number tells it from other rehearsals of the same member.
	Number int
}

// rehearsal is how far the rehearsal of one pod template is, of which a member waits.
type rehearsal struct {
	running Rehearsal // empty before it is begun
	passed  bool
}

// needRehearsal notes that a member waits. The first of its template in a round makes the gang wait for a rehearsal.
func (g *Gang) needRehearsal(m *member) {
	r := g.rehearsals[m.template]
	if g.config.Rehearse && (r == nil || !r.passed && r.running.UID == m.uid) { // one of its last wait may be about another node
		g.rehearsals[m.template] = &rehearsal{}
	}
}

// rehearsed reports whether no rehearsal keeps the gang.
func (g *Gang) rehearsed() bool {
	for _, r := range g.rehearsals {
		if !r.passed {
			return false
		}
	}
	return true
}

// rehearsing reports whether rehearsals alone keep the gang.
func (g *Gang) rehearsing() bool { return g.Lacking() <= 0 && !g.rehearsed() }

// beginRehearsals returns the rehearsals that are to be begun: of one waiting member of each template.
func (g *Gang) beginRehearsals() (due []Rehearsal) {
	for template, r := range g.rehearsals {
		if r.passed || g.Rehearsing(r.running) || g.awaitsRefused(template) {
			continue
		}
		m := g.toRehearse(template)
		if m == nil {
			delete(g.rehearsals, template)
			continue
		}
		g.rehearsalsBegun++
		r.running = Rehearsal{UID: m.uid, Number: g.rehearsalsBegun}
		due = append(due, r.running)
	}
	return due
}

// toRehearse returns a member of the template that waits: one whose bind was refused before if there is such, and
// always the same one of several; nil without one.
func (g *Gang) toRehearse(template Template) (first *member) {
	for _, m := range g.members {
		switch {
		case m.state != memberWaiting || m.template != template:
		case first == nil, m.bindRefused && !first.bindRefused, m.bindRefused == first.bindRefused && m.uid < first.uid:
			first = m
		}
	}
	return first
}

// awaitsRefused reports whether the quorum waits for a member of the template whose bind was refused before. A policy
// may refuse that member alone, so the rehearsal of another would prove nothing.
func (g *Gang) awaitsRefused(template Template) bool {
	if g.Lacking() <= 0 {
		return false
	}
	for _, m := range g.members {
		if m.bindRefused && m.inRound && m.state == memberIdle && m.template == template {
			return true
		}
	}
	return false
}

// BindRefused reports whether the last rehearsal of the member's bind was refused.
func (g *Gang) BindRefused(uid types.UID) bool {
	m, known := g.members[uid]
	return known && m.bindRefused
}

// Rehearsing reports whether the result of a rehearsal is still of interest.
func (g *Gang) Rehearsing(r Rehearsal) bool {
	m, known := g.members[r.UID]
	if !known || m.state != memberWaiting {
		return false
	}
	running := g.rehearsals[m.template]
	return running != nil && !running.passed && running.running == r
}

// Rehearsed gives the result of a rehearsal: refused is empty, or says why the bind would be refused. The
// member of a refused bind is sent back, and the gang with it when the quorum needs it.
func (g *Gang) Rehearsed(r Rehearsal, refused string, now time.Time) {
	if !g.Rehearsing(r) {
		return
	}
	m := g.members[r.UID]
	m.bindRefused = refused != ""
	if refused == "" {
		g.rehearsals[m.template].passed = true
		if g.round != nil { // what rehearsals take does not count
			g.round.deadline = later(g.round.deadline, now.Add(g.Timeout()))
		}
		g.probe.start(now)
		g.settle(now)
		return
	}
	g.startTask(m, taskReject, now)
	g.failInRound(m, Rollback{Cause: CauseBindRefused, Member: r.UID, Detail: refused}, now)
}
