package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// deletedPause is how long a member that was deleted while it waited is left to the framework, which
// rejects a deleted waiting pod itself; and so are the others when the rollback's cause is not the
// cluster's room, for then they may be about to be deleted too. Two rejections at the same time race with
// each other inside Kubernetes 1.37.2: a waiting pod notes that it is done under a lock for reading.
const deletedPause = 100 * time.Millisecond

// Gang is the state of one gang. The zero value is not usable; see [New].
type Gang struct {
	config  Config
	spec    *Spec // nil while the PodGroup does not exist
	members map[types.UID]*member
	count   [memberStates]int // members by state
	holding int               // members that hold something
	// heldSince is since when any does; zero while none does.
	heldSince time.Time
	phase     Phase

	admitted bool  // a scout is on its way
	scout    retry // of the scout's activation
	round    *round
	// rounds numbers the rounds.
	rounds int

	prepareBy      time.Time // when the members that were released are to be prepared
	changes        int       // of the gang itself, by [Gang.Changed]
	changedAt      time.Time // when something changed last that may help
	readySince     time.Time // when the quorum came to exist; zero in Pending
	pendingSince   time.Time // when it ceased to exist last
	arrivedAt      time.Time // when a member came last that has no node
	countSucceeded bool      // members that have succeeded count, as of the last input
	releasedHere   bool      // a member of the present quorum was released here, by Release or Permit
	running        bool      // members have been bound, with none on its way, and some still are, as of the last input

	failures   int // rollbacks with backoff since the gang was whole
	lostRounds int // those of them that ended a round in which members held something
	// pauseLimit bounds the pause after the last rollback.
	pauseLimit   time.Duration
	backoffUntil time.Time // end of the Backoff phase
	backoffSince time.Time // when it began
	notBefore    time.Time // before when no room ends it
	last         Rollback  // the last one

	rehearsals      map[Template]*rehearsal // since the last round began
	rehearsalsBegun int                     // ever

	partialSince time.Time // when the gang came to be bound in part; zero when it is not

	departures int // how often members have left the barrier
	// keptNodes are the nodes of members whose binds have failed there once, until their next bind or a rollback.
	keptNodes map[types.UID]string

	gate      gate      // of a native gang
	probe     retry     // of the look at who waits in Permit
	openTasks int       // of all members
	tasksAt   time.Time // before which none is due; zero if none is open
	report    Actions   // what has happened since the last Act: Rollbacks, BindFailed, BecameWhole
}

// memberState is where one member stands; see the package's documentation.
type memberState uint8

const (
	memberHeld memberState = iota
	memberIdle
	memberWaiting
	memberReleased
	memberPrepared
	memberCommitted
	memberBound
	memberSucceeded
	memberGone
	memberStates // how many there are
)

// member is one pod of the gang.
type member struct {
	uid   types.UID
	state memberState
	node  string // that of its last Permit
	// failedOn is the node to which its bind failed last. One that fails there again is not kept for it.
	failedOn string
	template Template
	// holds is true from Permit until the member's bind is on the way or it is unreserved: it has something
	// reserved that a rejection would free.
	holds bool
	// letIn is true while the gang lets the member into the queue although its quorum has not been released.
	letIn bool
	// inRound is true for a member of the present round, until it has failed in it.
	inRound bool
	// resting is true from a failed bind until the next cycle: the framework's own backoff of the pod
	// is not to be cut short.
	resting bool
	// sentBack is true from the loss of the node that the member was given, or from a cycle that found none
	// and may not preempt, to its next cycle.
	sentBack bool
	// bindRefused is true from a rehearsal that was refused to one that passed, or to the bind.
	bindRefused bool
	// unanswered counts the steps of the member's cycles since the last one that had a result: each [Gang.Enqueue] that
	// let it into the queue, and each [Gang.Enter].
	unanswered int
	// entered is true if one of these steps was Enter.
	entered bool
	// refused is true for a member of a native gang that has failed since the gate was open last.
	refused bool
	// scouted is how often the member was activated as scout since it was last seen in a cycle.
	scouted int
	tasks   [tasks]retry
}

// New returns a gang without PodGroup and members.
func New(config Config) *Gang {
	return &Gang{config: config, members: map[types.UID]*member{}, rehearsals: map[Template]*rehearsal{}, keptNodes: map[types.UID]string{}}
}

// Phase returns the gang's phase as of the last input.
func (g *Gang) Phase() Phase { return g.phase }

// ReadySince returns when the quorum came to exist, zero when it does not.
func (g *Gang) ReadySince() time.Time { return g.readySince }

// LacksQuorum reports whether the quorum exists and has not been released.
func (g *Gang) LacksQuorum() bool {
	switch g.phase {
	case Queued, Gathering, Waiting, Backoff:
		return true
	case Pending, Releasing, Whole:
	}
	return false
}

// ShortSince returns when the quorum ceased to exist last, or when a member came after that which has no node.
func (g *Gang) ShortSince() time.Time { return later(g.arrivedAt, g.pendingSince) }

// Empty reports whether nothing is known of the gang, neither PodGroup nor members.
func (g *Gang) Empty() bool { return g.spec == nil && len(g.members) == 0 }

// Counts returns how many members exist for the quorum, wait in Permit, and are bound or were until they
// succeeded.
func (g *Gang) Counts() (live, waiting, bound int) {
	return g.live(), g.count[memberWaiting], g.bound()
}

// Succeeded returns how many members have succeeded and count.
func (g *Gang) Succeeded() int { return g.succeeded() }

// Committed reports whether a live member is bound, or its bind is on the way and nothing stops it.
func (g *Gang) Committed(uid types.UID) bool {
	m, known := g.members[uid]
	return known && (m.state == memberCommitted || m.state == memberBound)
}

// HasNode reports whether a live member is bound, or has a node that it has not lost.
func (g *Gang) HasNode(uid types.UID) bool {
	m, known := g.members[uid]
	return known && m.state >= memberWaiting && m.state <= memberBound
}

// Node returns the node that a member was given last, or empty.
func (g *Gang) Node(uid types.UID) string {
	if m, known := g.members[uid]; known {
		return m.node
	}
	return ""
}

// AnyPlaced reports whether a live member is bound or has a node.
func (g *Gang) AnyPlaced() bool { return g.releasedOrLater()-g.succeeded()+g.count[memberWaiting] > 0 }

// SentBack reports whether a member lost the node that it was given, or found none, and has not been in a
// cycle since: no node is meant for it now.
func (g *Gang) SentBack(uid types.UID) bool {
	m, known := g.members[uid]
	return known && m.sentBack && !m.holds && g.KeptNode(uid) == "" && (m.state == memberIdle || m.state == memberHeld)
}

// LastRollback returns the last rollback since the gang was whole; its Cause is empty when there was none.
func (g *Gang) LastRollback() Rollback { return g.last }

// MinMember returns the quorum, 0 while the PodGroup does not exist. For a gang that runs and whose replacements go one
// by one, these are the members that are bound.
func (g *Gang) MinMember() int {
	switch {
	case g.spec == nil:
		return 0
	case g.spec.OneByOne && g.running:
		return min(g.spec.MinMember, g.count[memberBound])
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
		// A new PodGroup of the old name: those who waited did so for the old one.
		g.DeleteGroup(now)
	}
	g.leaveHierarchy()
	g.spec = &spec
	g.join()
	g.backoffUntil = time.Time{}
	g.probe.start(now)
	g.settle(now)
}

// DeleteGroup says that the PodGroup is gone. Waiting members are sent back.
func (g *Gang) DeleteGroup(now time.Time) {
	g.leaveHierarchy()
	g.spec = nil
	g.failures, g.lostRounds = 0, 0
	g.settle(now)
}

// Ready reports whether the gang can be admitted: it is Queued, and no member still holds what it got in an earlier
// round, which a proposal would take for somebody else's.
func (g *Gang) Ready() bool { return g.phase == Queued && g.holding == 0 && !g.config.Native }

// Admitted reports whether the gang has been admitted, and its scout is on its way.
func (g *Gang) Admitted() bool { return g.admitted }

// Missing returns the members to make a proposal for, in no particular order.
func (g *Gang) Missing() []types.UID { return g.inState(memberIdle) }

// Lacking is how many more members need a node for the quorum.
func (g *Gang) Lacking() int { return g.MinMember() - g.releasedOrLater() - g.count[memberWaiting] }

// RoundNumber numbers the present round; 0 when there is none.
func (g *Gang) RoundNumber() int {
	if g.round == nil {
		return 0
	}
	return g.round.id
}

// KeptNode returns the node of a member whose bind has failed there once, and whose next attempt is to be for the same
// node; empty for others.
func (g *Gang) KeptNode(uid types.UID) string {
	node, failed := g.keptNodes[uid]
	if !failed || g.members[uid].state != memberIdle {
		return ""
	}
	if g.phase == Gathering || g.phase == Waiting || g.phase == Releasing || g.phase == Queued && g.config.Native {
		return node
	}
	return ""
}
