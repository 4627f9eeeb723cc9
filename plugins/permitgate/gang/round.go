package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// scoutInterval is how long a scout has to come to a cycle before another member is activated too. It doubles
	// each time, up to retryMax. No event can take its place: of a scout that another plugin keeps out of the queue, or
	// refuses before this one is asked, nothing is heard, and not even that other pods have cycles.
	scoutInterval = 20 * time.Millisecond
	// requeueInterval is how long a member that is to be tried once more is given to come back to the queue.
	requeueInterval = time.Millisecond
	// firstsLimit is how long those that go first have to find a node before the others follow.
	firstsLimit = 500 * time.Millisecond
	// stallLimit and stallCycles are for how long, and for how many scheduling cycles of others, a round goes on in
	// which members wait and no other makes a step; silenceLimit is for how long if there are no such cycles.
	stallLimit   = 2 * time.Second
	stallCycles  = 20
	silenceLimit = 15 * time.Second
	// roundPause is how many times as long as a failed round took no other follows it.
	roundPause = 10
)

// round is what a proposal has begun.
type round struct {
	id       int
	since    time.Time
	deadline time.Time
	// stepAt is when the round began, or a member of it entered or left a scheduling cycle last.
	stepAt time.Time
	// stepCycles is how many scheduling cycles there had been then.
	stepCycles int64
	idle       int // members of the round in the state memberIdle
	// firsts are the members that go first and have neither found a node nor failed yet.
	firsts map[types.UID]struct{}
	// restAt is when the others follow in any case.
	restAt time.Time
}

// Admit admits a gang that is Ready: scouts are activated until one comes to a cycle. It reports false when the gang is
// not Ready, or has been admitted already.
func (g *Gang) Admit(now time.Time) bool {
	g.settle(now)
	if !g.Ready() || g.admitted {
		return false
	}
	g.admitted = true
	g.scout = retry{at: now, first: scoutInterval}
	return true
}

// Gather begins a round. It reports false, and does nothing, when the gang has changed since Missing was asked so that
// the round does not suit it.
func (g *Gang) Gather(r Round, now time.Time) bool {
	g.settle(now)
	if g.phase != Queued {
		return false
	}
	idle := 0
	for _, uid := range r.Members {
		if m, known := g.members[uid]; known && m.state == memberIdle {
			idle++
		}
	}
	if idle < g.Lacking() || idle == 0 {
		return false
	}
	g.rounds++
	g.admitted = false
	clear(g.rehearsals)
	g.round = &round{
		id: g.rounds, since: now, deadline: now.Add(g.Timeout()), idle: idle,
		firsts: map[types.UID]struct{}{}, restAt: now.Add(firstsLimit),
	}
	g.noteStep(now)
	for _, m := range g.members {
		m.letIn = false // scouts that were overtaken
		m.noteResult()
	}
	for _, uid := range r.Members {
		if m, known := g.members[uid]; known && m.state == memberIdle {
			m.inRound = true
		}
	}
	for _, uid := range r.First {
		if m, known := g.members[uid]; known && m.inRound {
			g.round.firsts[uid] = struct{}{}
			g.letIn(m, now)
		}
	}
	if len(g.round.firsts) == 0 {
		g.letRestIn(now)
	}
	g.settle(now)
	return true
}

// letIn lets a member into the queue.
func (g *Gang) letIn(m *member, now time.Time) {
	m.letIn = true
	g.wakeAt(m, now)
}

// noteFirstTried notes that a member that goes first has found a node, or has not. When all have, the others follow.
func (g *Gang) noteFirstTried(m *member, now time.Time) {
	if g.round == nil {
		return
	}
	if _, first := g.round.firsts[m.uid]; !first {
		return
	}
	delete(g.round.firsts, m.uid)
	if len(g.round.firsts) == 0 {
		g.letRestIn(now)
	}
}

// letRestIn lets the members into the queue that do not go first.
func (g *Gang) letRestIn(now time.Time) {
	g.round.firsts = nil
	g.noteStep(now)
	for _, m := range g.members {
		if m.inRound && !m.letIn && m.state == memberIdle {
			g.letIn(m, now)
		}
	}
}

// endRound forgets the round, or that the gang was admitted, and lets its members into the queue no longer.
func (g *Gang) endRound() {
	if g.round == nil && !g.admitted {
		return
	}
	g.round, g.admitted = nil, false
	for _, m := range g.members {
		m.letIn, m.inRound = false, false
		m.noteResult()
	}
}

// Refuse sends the scout's gang to backoff instead of beginning a round, for at least a time unless something changes,
// and for as long as pause whatever changes.
func (g *Gang) Refuse(r Rollback, pause, atLeast time.Duration, now time.Time) {
	g.settle(now)
	if g.phase == Queued {
		g.rollBackFor(r, pause, max(pause, atLeast), now)
	}
	g.settle(now)
}

// failInRound takes a member out of the round, if there is one, and ends that if the quorum cannot do without the
// member.
func (g *Gang) failInRound(m *member, r Rollback, now time.Time) {
	switch {
	case m.state == memberWaiting:
		m.inRound = false
		g.move(m, memberIdle)
	case m.state == memberIdle && m.inRound:
		m.inRound = false
		g.round.idle--
	default:
		return
	}
	m.letIn = false // it has to wait for the quorum, or the next round
	m.refused = g.config.Native
	g.noteFirstTried(m, now)
	g.rollBackIfShort(r, now)
}

// pickScout returns the member in whose cycle the proposal is to be made: the one that was activated least often
// without coming to a cycle, and of several always the same.
func (g *Gang) pickScout() *member {
	var best *member
	for _, m := range g.members {
		if m.state != memberIdle || m.resting {
			continue
		}
		if best == nil || m.scouted < best.scouted || m.scouted == best.scouted && m.uid < best.uid {
			best = m
		}
	}
	return best
}
