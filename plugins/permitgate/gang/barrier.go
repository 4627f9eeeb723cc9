package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// going reports whether the member has a node, and can still be sent back.
func (m *member) going() bool {
	return m.state == memberWaiting || m.state == memberReleased || m.state == memberPrepared
}

// release lets a member go towards the barrier.
func (g *Gang) release(m *member, now time.Time) {
	if g.preparing() == 0 {
		g.prepareBy = time.Time{}
		if g.config.PrepareTimeout > 0 {
			g.prepareBy = now.Add(g.config.PrepareTimeout)
		}
	}
	g.move(m, memberReleased)
	m.holds = true
	g.ours = true
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

// Arrive is called when a member that was let go has been prepared for its bind: it has come to the barrier.
// What becomes of it is what [Gang.Verdict] says, now and after each further input.
func (g *Gang) Arrive(uid types.UID, now time.Time) {
	g.settle(now)
	if m, known := g.members[uid]; known && m.state == memberReleased {
		g.move(m, memberPrepared)
		g.commit.start(now)
		g.settle(now)
	}
}

// Verdict returns what becomes of a member that has come to the barrier, and when it is refused why, for a
// person to read.
func (g *Gang) Verdict(uid types.UID) (Arrival, string) {
	m, known := g.members[uid]
	switch {
	case !known || m.state == memberGone:
		return ArrivalRefused, "the pod was deleted or has left the gang"
	case m.state == memberPrepared:
		return ArrivalWait, ""
	case m.state == memberCommitted || m.state == memberBound || m.state == memberDone:
		return ArrivalPass, ""
	}
	return ArrivalRefused, "the gang was rolled back: " + g.lastDetail
}

// Departures counts how often members have left the barrier: when it has not changed, all that waited there
// wait on.
func (g *Gang) Departures() int { return g.departures }

// prepared reports whether the members at the barrier complete the quorum.
func (g *Gang) prepared() bool {
	return g.valid() && g.count[memberPrepared] > 0 && g.sure()+g.count[memberPrepared] >= g.spec.MinMember
}

// Commit lets the members bind that are at the barrier. sure are those of whom the caller knows that nothing
// but a failure of the bind itself can stop them from now on; lost are those that have been stopped. When
// the quorum is not complete without the lost ones, the gang is rolled back, the sure ones with it.
func (g *Gang) Commit(sure, lost []types.UID, now time.Time) {
	g.settle(now)
	last := types.UID("")
	for _, uid := range lost {
		if m, known := g.members[uid]; known && m.state == memberPrepared {
			// Its Unreserve is on the way.
			m.resting = true
			m.reject.start(now.Add(deletedPause))
			g.move(m, memberIdle)
			last = uid
		}
	}
	if last != "" {
		g.fail(CauseNotPrepared, last, "a member that was let go was preempted before all were ready to be bound", now)
	}
	if !g.prepared() {
		return
	}
	var ready []*member
	for _, uid := range sure {
		if m, known := g.members[uid]; known && m.state == memberPrepared {
			ready = append(ready, m)
		}
	}
	if g.sure()+len(ready) < g.spec.MinMember {
		g.commit.start(now)
		return
	}
	for _, m := range ready {
		g.move(m, memberCommitted)
		m.holds = false
	}
	g.settle(now)
}
