package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// complete reports whether members wait although the quorum has a node, and neither a rehearsal nor a composite group
// keeps it.
func (g *Gang) complete() bool {
	return g.count[memberWaiting] > 0 && g.placed() && g.rehearsed() && g.allowed((*Gang).placed)
}

// Release releases those of uids that wait, of this gang and of those that go together with it, if with them the
// quorums are complete, and returns them: each is to be allowed in Permit. uids are the members that the caller has
// seen waiting there for this plugin alone. It returns nil, and changes nothing, when they do not complete the quorums.
func (g *Gang) Release(uids []types.UID, now time.Time) []types.UID {
	g.settle(now)
	if !g.complete() {
		return nil
	}
	relatives := g.Relatives()
	ready := make(map[*Gang][]types.UID, len(relatives))
	for _, other := range relatives {
		for _, uid := range uids {
			if m, known := other.members[uid]; known && m.state == memberWaiting {
				ready[other] = append(ready[other], uid)
			}
		}
	}
	var released []types.UID
	for _, other := range g.together(func(other *Gang) bool {
		return other.placed() && other.releasedOrLater()+len(ready[other]) >= other.MinMember()
	}) {
		for _, uid := range ready[other] {
			other.release(other.members[uid], now)
			released = append(released, uid)
		}
	}
	for _, other := range relatives {
		other.settle(now)
	}
	return released
}

// mayBeSentBack reports whether the member has a node, and can still be sent back.
func (m *member) mayBeSentBack() bool {
	return m.state == memberWaiting || m.state == memberReleased || m.state == memberPrepared
}

// release lets a member go towards the barrier.
func (g *Gang) release(m *member, now time.Time) {
	if g.preparing() == 0 {
		g.prepareBy = now.Add(g.config.PrepareTimeout)
	}
	g.move(m, memberReleased)
	g.setHolds(m, true)
	g.releasedHere = true
}

// Arrival is what becomes of a member at the barrier.
type Arrival uint8

// What becomes of a member at the barrier.
const (
	// ArrivalWait: the member waits for the others.
	ArrivalWait Arrival = iota
	// ArrivalPass: the member is to be bound.
	ArrivalPass
	// ArrivalRefused: the member is to be sent back.
	ArrivalRefused
)

// Arrive is called when a member that was released has been prepared for its bind: it has come to the barrier. When the
// members there complete the quorum it returns them, with those of the gangs that go together with this one: the caller
// makes sure that nothing can stop their binds any more, and passes on to [Gang.Commit] for which of them that worked.
// What becomes of a member is what [Gang.ArrivalOf] says then, and after each further input.
func (g *Gang) Arrive(uid types.UID, now time.Time) (commit []types.UID) {
	g.settle(now)
	m, known := g.members[uid]
	if !known || m.state != memberReleased {
		return nil
	}
	g.move(m, memberPrepared)
	g.settle(now)
	for _, other := range g.passing() {
		commit = append(commit, other.inState(memberPrepared)...)
	}
	return commit
}

// ArrivalOf returns what becomes of a member that has come to the barrier, and when it is refused why, for a
// person to read.
func (g *Gang) ArrivalOf(uid types.UID) (Arrival, string) {
	m, known := g.members[uid]
	switch {
	case !known || m.state == memberGone:
		return ArrivalRefused, "the pod was deleted or has left the gang"
	case m.state == memberPrepared:
		return ArrivalWait, ""
	case m.state == memberCommitted || m.state == memberBound || m.state == memberSucceeded:
		return ArrivalPass, ""
	}
	return ArrivalRefused, "the gang was rolled back: " + g.last.Detail
}

// Departures counts how often members have left the barrier: when it has not changed, all that waited there
// wait on.
func (g *Gang) Departures() int { return g.departures }

// Commit lets the members bind that are at the barrier. sure are those of which the caller knows that only a failure of
// the bind itself can stop them from now on; lost are those that have been stopped. When a quorum is not complete
// without the lost ones, its gang is rolled back, the sure ones with it, and the gangs that need it.
func (g *Gang) Commit(sure, lost []types.UID, now time.Time) {
	relatives := g.Relatives()
	for _, other := range relatives {
		other.lose(lost, now)
	}
	for _, other := range g.passing() {
		for _, uid := range sure {
			if m, known := other.members[uid]; known && m.state == memberPrepared {
				other.move(m, memberCommitted)
				other.setHolds(m, false)
			}
		}
	}
	for _, other := range relatives {
		other.settle(now)
	}
}

// passing returns the gangs whose members at the barrier may pass it. Those beyond the quorum of a gang that is past it
// depend on no other gang.
func (g *Gang) passing() []*Gang {
	if g.quorumCommitted() {
		return []*Gang{g}
	}
	return g.together((*Gang).quorumPrepared)
}

// lose says that members have been stopped at the barrier.
func (g *Gang) lose(lost []types.UID, now time.Time) {
	last := types.UID("")
	for _, uid := range lost {
		if m, known := g.members[uid]; known && m.state == memberPrepared {
			// Its Unreserve is on the way.
			m.resting = true
			g.move(m, memberIdle)
			g.startTask(m, taskReject, now.Add(deletedPause))
			last = uid
		}
	}
	if last != "" {
		g.rollBackIfShort(Rollback{Cause: CauseNotPrepared, Member: last, Detail: "a released member was preempted before all were ready to be bound"}, now)
	}
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
