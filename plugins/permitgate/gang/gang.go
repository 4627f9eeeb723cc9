package gang

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// deletedPause is how long a member that was deleted while it waited is left to the framework, which
// rejects a deleted waiting pod itself; and so are the others when the rollback's cause is not the
// cluster's room, for then they may be about to be deleted too. Two rejections at the same time race with
// each other inside Kubernetes 1.37.1: a waiting pod notes that it is done under a lock for reading.
const deletedPause = 100 * time.Millisecond

// Gang is the state of one gang. The zero value is not usable; see [New].
type Gang struct {
	config  Config
	spec    *Spec // nil while the PodGroup does not exist
	members map[types.UID]*member
	count   [memberStates]int // members by state
	phase   Phase

	deadline   time.Time // of the Waiting phase
	prepareBy  time.Time // when the members that were let go are to be prepared; zero when they are not awaited
	roundStart time.Time
	roomAt     time.Time // when room was made last
	readySince time.Time // when the quorum came to exist; zero in Pending
	ours       bool      // a member of the present quorum was let go by Release or Permit

	failures   int       // rollbacks with backoff since the gang was whole
	until      time.Time // end of the Backoff phase
	rolledBack time.Time // when the last rollback was
	early      bool      // the backoff's end has been moved forward by room or new members
	hasty      int       // rounds in a row that were started early and failed
	lastCause  Cause
	lastDetail string

	rehearse bool   // binds are rehearsed
	turns    uint64 // of all members, ever

	partialSince time.Time // when the gang came to be bound in part; zero when it is not
	stranded     bool      // Actions.Stranded has been reported

	departures int // how often members have left the barrier

	planning planning

	probe  retry
	commit retry
	report Actions // what has happened since the last Act: Rollback, Rollbacks, BecameWhole
}

// member is one pod of the gang.
type member struct {
	state memberState
	// holds is true from Permit until the member's bind is on the way or it is unreserved: it has something
	// reserved that a rejection would free.
	holds bool
	// wanted is true while the member is to be moved to the active queue, until it is seen in a cycle.
	wanted bool
	// resting is true from a failed bind until the next cycle: the framework's own backoff of the pod
	// is not to be cut short.
	resting bool
	// sentBack is true from the loss of the node that the member was given, or from a cycle that found none
	// and may not preempt, to its next cycle.
	sentBack bool
	// tried is true from the member's first cycle on.
	tried bool
	// bindFailed is true from a failed bind to the member's next bind or rollback.
	bindFailed bool
	// slot is the member's place in the plan, until it is bound; nil without one.
	slot   *Slot
	wake   retry
	reject retry
	// turn numbers the member's waits in Permit, and the rehearsals of one.
	turn      uint64
	rehearsal rehearsal
}

// New returns a gang without PodGroup and members.
func New(config Config) *Gang {
	return &Gang{config: config, members: map[types.UID]*member{}}
}

// Phase returns the gang's phase as of the last input.
func (g *Gang) Phase() Phase { return g.phase }

// ReadySince returns when the quorum came to exist, zero when it does not.
func (g *Gang) ReadySince() time.Time { return g.readySince }

// Empty reports whether nothing is known of the gang, neither PodGroup nor members.
func (g *Gang) Empty() bool { return g.spec == nil && len(g.members) == 0 }

// Counts returns how many members exist for the quorum, wait in Permit, and are bound or were until they
// succeeded.
func (g *Gang) Counts() (live, waiting, settled int) {
	return g.live(), g.count[memberWaiting], g.settled()
}

// Preparing returns how many members have been let go, and can still be sent back.
func (g *Gang) Preparing() int { return g.preparing() }

// Holds reports whether a member holds something that its rejection would free: from Permit until its bind
// is on the way or it is unreserved.
func (g *Gang) Holds(uid types.UID) bool {
	m, known := g.members[uid]
	return known && m.holds
}

// SentBack reports whether a member lost the node that it was given, or found none, and has not been in a
// cycle since: no node is meant for it now.
func (g *Gang) SentBack(uid types.UID) bool {
	m, known := g.members[uid]
	return known && m.sentBack && !m.holds && !g.KeepsNode(uid) && (m.state == memberIdle || m.state == memberFailed || m.state == memberHeld)
}

// LastFailure says in words why the gang was rolled back last, empty when it never was.
func (g *Gang) LastFailure() string { return g.lastDetail }

// MinMember returns the quorum, 0 while the PodGroup does not exist.
func (g *Gang) MinMember() int {
	if g.spec == nil {
		return 0
	}
	return g.spec.MinMember
}

// SetGroup says that the PodGroup exists with this spec. A changed spec ends a backoff: it may have
// cured what failed.
func (g *Gang) SetGroup(spec Spec, now time.Time) {
	if g.spec != nil && *g.spec == spec {
		return
	}
	if g.spec != nil && g.spec.UID != spec.UID {
		// A new PodGroup of the old name: whoever waited did so for the old one.
		g.DeleteGroup(now)
	}
	g.spec = &spec
	g.until = time.Time{}
	g.probe.start(now)
	g.settle(now)
}

// DeleteGroup says that the PodGroup is gone. Waiting members are sent back.
func (g *Gang) DeleteGroup(now time.Time) {
	g.spec = nil
	g.failures = 0
	g.settle(now)
}

// Admit reports whether a member may enter the scheduling queue, or else why not, for a person to read.
// It is called with the member's PreEnqueue.
func (g *Gang) Admit(uid types.UID, now time.Time) (Reason, string) {
	g.settle(now)
	m, known := g.members[uid]
	if reason, detail := g.blocked(); reason != ReasonNone {
		if known {
			m.resting = false // from here on it is for this gang to wake it
		}
		return reason, detail
	}
	if !known || m.state == memberGone {
		return ReasonUnknown, "the pod has not been seen as a member yet"
	}
	return ReasonNone, ""
}

// Blocked returns what keeps the gang's members out of the queue, and that in words.
func (g *Gang) Blocked(now time.Time) (Reason, string) {
	g.settle(now)
	return g.blocked()
}

func (g *Gang) blocked() (Reason, string) {
	switch {
	case g.spec == nil:
		return ReasonNotFound, "the PodGroup does not exist"
	case g.spec.MinMember < 1:
		return ReasonInvalid, fmt.Sprintf("spec.minMember is %d, must be at least 1", g.spec.MinMember)
	case g.phase == Pending:
		detail := fmt.Sprintf("needs %d members, %d exist", g.spec.MinMember, g.live())
		if held := g.count[memberHeld]; held > 0 {
			detail += fmt.Sprintf(" and %d more have scheduling gates or another scheduler", held)
		}
		return ReasonTooFew, detail
	case g.phase == Backoff:
		// Not for how long, and in the words of the member that failed: they become a condition of the pods, and
		// each change of them is a write.
		return ReasonBackoff, cmp.Or(g.lastDetail, "backs off")
	}
	return ReasonNone, ""
}

// Enter is Admit at the member's PreFilter: the member is in a scheduling cycle.
func (g *Gang) Enter(uid types.UID, now time.Time) (Reason, string) {
	reason, detail := g.Admit(uid, now)
	if m, known := g.members[uid]; known {
		m.wanted, m.resting, m.tried = false, false, true
		if reason == ReasonNone {
			m.sentBack = false
			if m.state == memberFailed {
				// Something made the pod worth another try within the round.
				g.move(m, memberIdle)
			}
		}
	}
	return reason, detail
}

// Fits is called with the member's Permit: it has been given a node. wait is true when it must wait
// there for the quorum, until deadline; a reason other than ReasonNone means that it must be rejected.
func (g *Gang) Fits(uid types.UID, now time.Time) (wait bool, deadline time.Time, reason Reason, detail string) {
	if reason, detail := g.Admit(uid, now); reason != ReasonNone {
		return false, time.Time{}, reason, detail
	}
	m := g.members[uid]
	m.wanted = false
	if m.state == memberBound {
		// Bound behind this scheduler's back: there is nothing to wait for, and its own bind will say so.
		return false, time.Time{}, ReasonNone, ""
	}
	if g.letGo() >= g.spec.MinMember || g.lacksOnlyOne() {
		g.release(m, now)
		g.settle(now)
		return false, time.Time{}, ReasonNone, ""
	}
	if g.count[memberWaiting] == 0 {
		g.deadline = now.Add(g.timeout())
	}
	g.move(m, memberWaiting)
	m.holds = true
	g.restage(m)
	g.probe.start(now)
	g.settle(now)
	return true, g.deadline, ReasonNone, ""
}

// lacksOnlyOne reports whether one more member completes the quorum while none waits: that member
// needs nobody's consent and nobody needs its.
func (g *Gang) lacksOnlyOne() bool {
	return g.letGo() == g.spec.MinMember-1 && g.count[memberWaiting] == 0
}

// Unschedulable is called when a scheduling cycle found no node for the member; detail says why. It
// reports whether the member may preempt: when the quorum does not depend on others, as for an
// ordinary pod.
func (g *Gang) Unschedulable(uid types.UID, detail string, now time.Time) (mayPreempt bool) {
	if reason, _ := g.Admit(uid, now); reason != ReasonNone {
		if m, known := g.members[uid]; known {
			m.sentBack = true
		}
		return false
	}
	m := g.members[uid]
	m.wanted = false
	switch g.phase {
	case Releasing, Whole:
		return true
	case Gathering, Waiting:
		if g.lacksOnlyOne() {
			return true
		}
		m.sentBack = true
		if m.state == memberIdle {
			g.move(m, memberFailed)
			g.fail(CauseUnschedulable, uid, detail, now)
		}
	case Pending, Backoff:
	}
	return false
}

// Unreserved is called with the member's Unreserve: whatever it held is free again.
func (g *Gang) Unreserved(uid types.UID, now time.Time) {
	m, known := g.members[uid]
	if !known {
		return
	}
	held := m.holds
	m.holds, m.sentBack = false, true
	switch m.state {
	case memberGone:
		g.forget(uid, m)
	case memberWaiting:
		if g.phase == Releasing || g.phase == Whole {
			// It was sent back just as the quorum came in: now it may go its own way.
			g.move(m, memberIdle)
			g.want(m, now)
			break
		}
		g.move(m, memberFailed)
		g.fail(CauseRefused, uid, "a waiting member was refused", now)
		return
	case memberReleased, memberPrepared:
		m.resting = true
		g.move(m, memberIdle)
		g.fail(CauseNotPrepared, uid, "a member that was let go was preempted, or could not be prepared for its bind", now)
		return
	case memberCommitted:
		// The bind failed. The framework retries the member; those that were committed with it stay so.
		m.resting, m.bindFailed = true, true
		g.report.BindFailed = append(g.report.BindFailed, uid)
		g.move(m, memberIdle)
	case memberIdle:
		if held {
			// Sent back by a rollback: in the next round it starts like the others.
			g.want(m, now)
			break
		}
		if g.phase == Gathering || g.phase == Waiting {
			g.move(m, memberFailed)
			g.fail(CauseRefused, uid, "a member was refused the node that it was given", now)
			return
		}
	case memberHeld, memberFailed, memberBound, memberDone:
	}
	g.settle(now)
}

// Bound is called when the member's binding cycle has bound it.
func (g *Gang) Bound(uid types.UID, now time.Time) {
	m, known := g.members[uid]
	if !known {
		return
	}
	m.holds = false
	switch m.state {
	case memberGone:
		g.forget(uid, m)
	case memberDone:
	default:
		g.move(m, memberBound)
	}
	g.settle(now)
}
