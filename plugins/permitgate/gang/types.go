package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Phase is where a gang stands as a whole; see the package's documentation.
type Phase uint8

// The phases of a gang.
const (
	Pending Phase = iota
	Gathering
	Waiting
	Releasing
	Whole
	Backoff
)

// Phases lists all phases.
var Phases = []Phase{Pending, Gathering, Waiting, Releasing, Whole, Backoff}

// String returns the phase's name.
func (p Phase) String() string {
	return [...]string{"Pending", "Gathering", "Waiting", "Releasing", "Whole", "Backoff"}[p]
}

// memberState is where one member stands; see the package's documentation.
type memberState uint8

const (
	memberHeld memberState = iota
	memberIdle
	memberFailed
	memberWaiting
	memberReleased
	memberPrepared
	memberCommitted
	memberBound
	memberDone
	memberGone
	memberStates // how many there are
)

// Cause says why a gang was rolled back. Its values are those of a metric's label.
type Cause string

// The causes of a rollback.
const (
	// CauseUnschedulable: a member that the quorum needs fits on no node.
	CauseUnschedulable Cause = "unschedulable"
	// CauseNoPlan: there is no plan by which the quorum fits.
	CauseNoPlan Cause = "no_plan"
	// CauseTimeout: the quorum was not complete in time.
	CauseTimeout Cause = "timeout"
	// CauseRefused: a member was refused or failed after it had been given a node.
	CauseRefused Cause = "refused"
	// CauseBindRefused: the API server would refuse a member's bind.
	CauseBindRefused Cause = "bind_refused"
	// CauseNotPrepared: a member that was let go was preempted, failed to be prepared for its bind, or was
	// not prepared in time.
	CauseNotPrepared Cause = "not_prepared"
	// CauseRecovery: the gang stayed bound in part, and its bound members are evicted.
	CauseRecovery Cause = "recovery"
	// CauseMembersLeft: fewer live members than minMember are left.
	CauseMembersLeft Cause = "members_left"
	// CauseGroupGone: the PodGroup was deleted or became invalid.
	CauseGroupGone Cause = "group_gone"
)

// capacity reports whether room in the cluster may cure the cause. A member that was not prepared has often
// been preempted.
func (c Cause) capacity() bool {
	return c == CauseUnschedulable || c == CauseNoPlan || c == CauseTimeout || c == CauseNotPrepared
}

// Reason says what keeps a gang's members out of the scheduling queue.
type Reason string

// The reasons to wait. They are also the reasons of the events that say so.
const (
	// ReasonNone: nothing keeps them.
	ReasonNone Reason = ""
	// ReasonNotFound: the PodGroup does not exist.
	ReasonNotFound Reason = "PodGroupNotFound"
	// ReasonInvalid: the PodGroup asks for something that cannot be.
	ReasonInvalid Reason = "InvalidPodGroup"
	// ReasonTooFew: fewer than minMember live members exist.
	ReasonTooFew Reason = "TooFewMembers"
	// ReasonBackoff: the gang was rolled back a short while ago.
	ReasonBackoff Reason = "GangBackoff"
	// ReasonUnknown: the pod has not been seen as a member, or not any more.
	ReasonUnknown Reason = "UnknownMember"
)

// Config is what is the same for all gangs.
type Config struct {
	// Timeout is how long the first waiting member waits for the quorum when the gang's Spec does not say.
	Timeout time.Duration
	// PrepareTimeout is how long the members that were let go have to be prepared for their binds. It must
	// be longer than any plugin prepares a pod. 0 means forever.
	PrepareTimeout time.Duration
	// RecoveryTimeout is how long a gang may be bound in part before it counts as stranded. 0 means for ever.
	RecoveryTimeout time.Duration
	// Planned means that members go where a plan for the whole quorum has a slot for them; without it they
	// go wherever they fit.
	Planned bool
	// InitialBackoff follows the first rollback, and doubles with each further one up to MaxBackoff.
	InitialBackoff, MaxBackoff time.Duration
	// RoomPause is the least time between a rollback and the next round when room is made meanwhile. It
	// doubles with each such round that fails, a few times.
	RoomPause time.Duration
	// Jitter returns a number in [0, 1): that share of half the backoff is taken off. Gangs that failed
	// because each held what the other wanted need different numbers to get out of each other's way.
	Jitter func() float64
}

// Spec is what a PodGroup asks for.
type Spec struct {
	// UID tells a PodGroup from its predecessor of the same name.
	UID types.UID
	// MinMember is the quorum. Below 1 it is invalid, and members wait for it to be corrected.
	MinMember int
	// Timeout is how long the first waiting member waits for the quorum; 0 means the Config's.
	Timeout time.Duration
}

// Pod is what the API server shows of a pod that is neither terminating nor finished.
type Pod struct {
	// Bound is true when the pod has a node.
	Bound bool
	// Held is true for a pod without a node that nobody here can schedule: it has scheduling gates, or
	// belongs to another scheduler.
	Held bool
}

// Rollback tells of a round that failed.
type Rollback struct {
	Cause Cause
	// Member is the pod whose failure ended the round; empty when it was not one pod's.
	Member types.UID
	// Detail says in words what went wrong.
	Detail string
	// Rejected is how many members had a node and were sent back.
	Rejected int
	// Backoff is how long the gang stays away unless room is made; 0 when it waits for something else.
	Backoff time.Duration
}

// Actions is what [Gang.Act] asks its caller to do.
type Actions struct {
	// Probe lists the members that wait while the quorum is complete. The caller looks which of them
	// really wait in Permit for nothing but this gang, and passes those to [Gang.Release].
	Probe []types.UID
	// Rehearse lists the members that wait and whose binds are to be rehearsed; see [Gang.Rehearsed].
	Rehearse []Rehearsal
	// Commit lists the members at the barrier when they complete the quorum. The caller makes sure that
	// nothing can stop their binds any more, and passes on to [Gang.Commit] whom that worked for.
	Commit []types.UID
	// Reject lists the members that may still wait in Permit, or be prepared for their bind, and are to be
	// sent back. A member stays listed until its Unreserve, because the framework lists a pod as waiting,
	// and as one that is being prepared, only after Permit returned.
	Reject []types.UID
	// Activate lists the members to be moved to the active queue.
	Activate []types.UID
	// Rollback is the last failure since the previous call, nil when there was none.
	Rollback *Rollback
	// Rollbacks counts, by cause, the failures since the previous call.
	Rollbacks map[Cause]int
	// BindFailed lists the members whose binds have failed since the previous call.
	BindFailed []types.UID
	// Stranded is true once when the gang has become stranded; see [Gang.Stranded].
	Stranded bool
	// BecameWhole is true when the quorum has been bound through this gang's own release since the
	// previous call; TimeToWhole is then the time from the quorum's existence to that.
	BecameWhole bool
	TimeToWhole time.Duration
	// Next is when Act is to be called again although nothing happened; zero means never.
	Next time.Time
}
