package gang

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// scoutInterval is how long a scout has to come to a cycle before another member is activated too. It doubles
	// each time, up to retryMax.
	scoutInterval = 20 * time.Millisecond
	// requeueInterval is how long a member that failed on the proposed nodes is given to come back to the queue.
	requeueInterval = time.Millisecond
	// firstsLimit is how long those that go first have to find a node before the others follow.
	firstsLimit = 500 * time.Millisecond
	// stallLimit is how long a round goes on in which members wait and no other makes a step.
	stallLimit = 2 * time.Second
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
	// paused is since when rehearsals alone keep the gang; zero when they do not.
	paused time.Time
	hinted bool
	idle   int // members of the round in the state memberIdle
	firsts int // members that go first and have not found a node yet
	rest   []types.UID
	// restAt is when the others follow in any case.
	restAt time.Time
}

// Entry is what a member does in its scheduling cycle.
type Entry uint8

// The answers of [Gang.Enter].
const (
	// EnterRefused: the member does not belong in a cycle now.
	EnterRefused Entry = iota
	// EnterPropose: the member is the scout; the caller answers with Gather or Refuse.
	EnterPropose
	// EnterHinted: the member is tried on the nodes that are proposed to it.
	EnterHinted
	// EnterAnywhere: the member is tried on all nodes.
	EnterAnywhere
)

// Enter says that the member is in a scheduling cycle, in its PreFilter.
func (g *Gang) Enter(uid types.UID, now time.Time) (entry Entry, reason Reason, detail string) {
	g.settle(now)
	reason, detail = g.Refusal(uid)
	m, known := g.members[uid]
	if known {
		m.stopTask(taskWake)
		m.resting, m.scouted = false, 0
	}
	if reason != ReasonNone {
		if known {
			m.answered()
		}
		return EnterRefused, reason, detail
	}
	m.unanswered++
	m.entered = true
	if m.inRound {
		g.round.stepAt = now
		g.wakeAt(m, now.Add(retryMax)) // in case its cycle ends without a result
	}
	m.sentBack = false
	if m.state == memberFailed {
		// Something made the pod worth another try within the round.
		g.move(m, memberIdle)
	}
	switch {
	case g.phase == Queued:
		g.scout.at = now.Add(retryMax) // while the proposal is made, no other scout is needed
		return EnterPropose, ReasonNone, ""
	case g.round != nil && g.round.hinted && m.inRound && !m.hintsRefused:
		return EnterHinted, ReasonNone, ""
	}
	return EnterAnywhere, ReasonNone, ""
}

// Ready reports whether the gang is Queued, and no member holds anything of an earlier round: that would look like another's.
func (g *Gang) Ready() bool { return g.phase == Queued && g.holding == 0 && !g.config.Native }

// Admit admits a gang that is Ready: scouts are activated until one comes to a cycle. It reports false when the gang is not Ready, or has
// been admitted already.
func (g *Gang) Admit(now time.Time) bool {
	g.settle(now)
	if !g.Ready() || g.admitted {
		return false
	}
	g.admitted = true
	g.scout = retry{at: now, first: scoutInterval}
	return true
}

// Admitted reports whether the gang has been admitted, and its scout is on its way.
func (g *Gang) Admitted() bool { return g.admitted }

// Missing returns the members to make a proposal for, in no particular order, and how many of them the quorum lacks.
func (g *Gang) Missing() (members []types.UID, need int) {
	return append(g.inState(memberIdle), g.inState(memberFailed)...), g.lacking()
}

// lacking is how many members the quorum lacks that have a node.
func (g *Gang) lacking() int { return g.MinMember() - g.releasedOrLater() - g.count[memberWaiting] }

// Gather begins a round. It reports false, and does nothing, when the gang has changed since Missing was asked so that the
// round does not suit it.
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
	if idle < g.lacking() || idle == 0 {
		return false
	}
	g.rounds++
	g.admitted = false
	clear(g.rehearsals)
	g.round = &round{id: g.rounds, since: now, deadline: now.Add(g.timeout()), stepAt: now, hinted: r.Hinted, idle: idle, restAt: now.Add(firstsLimit)}
	for _, m := range g.members {
		m.letIn = false // scouts that were overtaken
		m.answered()
	}
	for _, uid := range r.Members {
		if m, known := g.members[uid]; known && m.state == memberIdle {
			m.inRound = true
		}
	}
	for _, uid := range r.First {
		if m, known := g.members[uid]; known && m.inRound && !m.first {
			m.first = true
			g.round.firsts++
			g.letIn(m, now)
		}
	}
	for _, uid := range r.Members {
		if m, known := g.members[uid]; known && m.inRound && !m.first {
			g.round.rest = append(g.round.rest, uid)
		}
	}
	if g.round.firsts == 0 {
		g.letRestIn(now)
	}
	g.settle(now)
	return true
}

// RoundNumber numbers the present round; 0 when there is none.
func (g *Gang) RoundNumber() int {
	if g.round == nil {
		return 0
	}
	return g.round.id
}

// letIn lets a member into the queue.
func (g *Gang) letIn(m *member, now time.Time) {
	m.letIn = true
	g.wakeAt(m, now)
}

// firstTried notes that a member that goes first has found a node, or has not. When all have, the others follow.
func (g *Gang) firstTried(m *member, now time.Time) {
	if !m.first || g.round == nil {
		return
	}
	m.first = false
	if g.round.firsts == 0 {
		return // the others have not waited
	}
	if g.round.firsts--; g.round.firsts == 0 {
		g.letRestIn(now)
	}
}

func (g *Gang) letRestIn(now time.Time) {
	g.round.firsts, g.round.stepAt = 0, now
	for _, uid := range g.round.rest {
		if m, known := g.members[uid]; known && m.state == memberIdle {
			g.letIn(m, now)
		}
	}
	g.round.rest = nil
}

// endRound forgets the round, or that the gang was admitted, and lets its members into the queue no longer.
func (g *Gang) endRound() {
	if g.round == nil && !g.admitted {
		return
	}
	g.round, g.admitted = nil, false
	for _, m := range g.members {
		m.letIn, m.inRound, m.first, m.hintsRefused = false, false, false, false
		m.answered()
	}
}

// Refuse sends the scout's gang to backoff instead of beginning a round. Whatever changes, but for the gang itself, it is not admitted again for
// as long as pause.
func (g *Gang) Refuse(r Rollback, pause time.Duration, now time.Time) {
	g.settle(now)
	if g.phase == Queued {
		g.rollBackFor(r, pause, now)
	}
	g.settle(now)
}

// Outcome is what becomes of a member that found no node.
type Outcome uint8

// The answers of [Gang.Unschedulable].
const (
	// OutcomeWait: it waits until the gang wakes it.
	OutcomeWait Outcome = iota
	// OutcomeRetry: it is tried again, on all nodes.
	OutcomeRetry
	// OutcomePreempt: it may preempt, as any pod: the quorum does not depend on other members.
	OutcomePreempt
)

// Unschedulable is called when a scheduling cycle found no node for the member; detail says why, and reason the same in words
// that do not change with every look.
func (g *Gang) Unschedulable(uid types.UID, detail, reason string, now time.Time) Outcome {
	g.settle(now)
	m, known := g.members[uid]
	if known {
		m.answered()
	}
	if reason, _ := g.Refusal(uid); reason != ReasonNone {
		if known {
			m.sentBack = true
		}
		return OutcomeWait
	}
	m.stopTask(taskWake)
	switch g.phase {
	case Releasing, Whole:
		return OutcomePreempt
	case Queued:
		// It was refused before it could scout.
		m.sentBack = true
		g.rollBack(Rollback{Cause: CauseUnschedulable, Member: uid, Detail: detail, Reason: reason}, now)
		g.settle(now)
	case Gathering, Waiting:
		if g.round == nil {
			return OutcomePreempt
		}
		m.sentBack = true
		g.round.stepAt = now
		if g.round.hinted && !m.hintsRefused {
			m.hintsRefused = true
			g.wakeAt(m, now.Add(requeueInterval))
			return OutcomeRetry
		}
		g.failInRound(m, Rollback{Cause: CauseUnschedulable, Member: uid, Detail: detail, Reason: reason}, now)
	case Pending, Backoff:
	}
	return OutcomeWait
}

// failInRound notes that a member cannot be scheduled in this round.
func (g *Gang) failInRound(m *member, r Rollback, now time.Time) {
	if m.state == memberIdle {
		g.move(m, memberFailed)
		g.firstTried(m, now)
		g.rollBackIfShort(r, now)
	}
}

// cycleFailed is what follows when a member's cycles end without a result.
func (g *Gang) cycleFailed(m *member, now time.Time) {
	m.answered()
	m.stopTask(taskWake)
	r := Rollback{Cause: CauseCycleFailed, Member: m.uid, Detail: "its scheduling cycle ends without a result, by a refusal or an error of another plugin"}
	switch {
	case m.inRound:
		g.failInRound(m, r, now)
	case g.phase == Queued && g.live() <= g.spec.MinMember:
		g.rollBack(r, now)
		g.settle(now)
	}
}

// SetCycleFailure says why the member's cycles fail, for a person to read. It changes nothing unless that was what the gang was rolled back for.
func (g *Gang) SetCycleFailure(uid types.UID, detail string) {
	if g.last.Cause != CauseCycleFailed || g.last.Member != uid || detail == "" {
		return
	}
	g.last.Detail = detail
	if r := g.report.Rollback; r != nil && r.Cause == CauseCycleFailed && r.Member == uid {
		r.Detail = detail
	}
}

// Permit is called with the member's Permit: it has been given a node. wait is true when it must wait
// there for the quorum; a reason other than ReasonNone means that it must be rejected.
func (g *Gang) Permit(uid types.UID, now time.Time) (wait bool, reason Reason, detail string) {
	g.settle(now)
	if reason, detail := g.Refusal(uid); reason != ReasonNone {
		return false, reason, detail
	}
	m := g.members[uid]
	m.stopTask(taskWake)
	m.answered()
	if m.state == memberBound {
		// Bound behind this scheduler's back: there is nothing to wait for, and its own bind will say so.
		return false, ReasonNone, ""
	}
	if g.releasedOrLater() >= g.spec.MinMember || g.lacksOnlyOne() {
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
		g.round.deadline = now.Add(g.timeout())
	}
	g.round.stepAt = now
	g.move(m, memberWaiting)
	g.setHolds(m, true)
	g.needRehearsal(m)
	g.firstTried(m, now)
	g.probe.start(now)
	g.settle(now)
	return true, ReasonNone, ""
}

// lacksOnlyOne reports whether one more member completes the quorum while none waits: that member
// needs no other's consent, and no other needs its.
func (g *Gang) lacksOnlyOne() bool {
	return g.releasedOrLater() == g.spec.MinMember-1 && g.count[memberWaiting] == 0
}

// Unreserved is called with the member's Unreserve: whatever it held is free again.
func (g *Gang) Unreserved(uid types.UID, now time.Time) {
	m, known := g.members[uid]
	if !known {
		return
	}
	held := m.holds
	m.sentBack = true
	m.answered()
	g.setHolds(m, false)
	m.stopTask(taskReject)
	if g.config.Native && m.state != memberGone {
		defer func() { g.cameBack(m, now) }() // what follows may be a rollback
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
		g.move(m, memberFailed)
		g.rollBackIfShort(Rollback{Cause: CauseRefused, Member: uid, Detail: "a waiting member was refused"}, now)
		return
	case memberReleased, memberPrepared:
		m.resting = true
		g.move(m, memberIdle)
		g.rollBackIfShort(Rollback{Cause: CauseNotPrepared, Member: uid, Detail: "a released member was preempted, or could not be prepared for its bind"}, now)
		return
	case memberCommitted:
		// The bind failed. The framework retries the member; those that were committed with it stay so.
		m.resting, m.bindFailed = true, true
		g.report.BindFailed = append(g.report.BindFailed, uid)
		g.move(m, memberIdle)
	case memberIdle:
		if g.config.Native && !held && g.round == nil && !g.gate.rolledBack {
			g.move(m, memberFailed)
			if g.valid() && g.live() >= g.spec.MinMember && g.count[memberIdle]+g.releasedOrLater() < g.spec.MinMember {
				g.rollBack(Rollback{Cause: CauseRefused, Member: uid, Detail: "a member was refused after it had been given a node"}, now)
			}
			break
		}
		if held || g.round == nil || !m.inRound {
			// Sent back by a rollback: in the next round it starts like the others.
			if g.letsIn(m) && !m.resting {
				g.wakeAt(m, now)
			}
			break
		}
		g.move(m, memberFailed)
		g.firstTried(m, now)
		g.rollBackIfShort(Rollback{Cause: CauseRefused, Member: uid, Detail: "a member was refused after it had been given a node"}, now)
		return
	case memberHeld, memberFailed, memberBound, memberSucceeded:
	}
	g.settle(now)
}

// Bound is called when the member's binding cycle has bound it.
func (g *Gang) Bound(uid types.UID, now time.Time) {
	m, known := g.members[uid]
	if !known {
		return
	}
	g.setHolds(m, false)
	switch m.state {
	case memberGone:
		g.forget(m)
	case memberSucceeded:
	default:
		g.move(m, memberBound)
	}
	g.settle(now)
}

// pickScout returns the member whose cycle is to make the proposal: of those that could be the one that was activated
// least often without being seen, always the same one of several.
func (g *Gang) pickScout() *member {
	var best *member
	for _, m := range g.members {
		if m.state != memberIdle || m.resting {
			continue
		}
		if best == nil || m.scouted < best.scouted || m.scouted == best.scouted && strings.Compare(string(m.uid), string(best.uid)) < 0 {
			best = m
		}
	}
	return best
}
