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
	Queued
	Gathering
	Waiting
	Releasing
	Whole
	Backoff
)

// Phases lists all phases.
var Phases = []Phase{Pending, Queued, Gathering, Waiting, Releasing, Whole, Backoff}

// String returns the phase's name.
func (p Phase) String() string {
	return [...]string{"Pending", "Queued", "Gathering", "Waiting", "Releasing", "Whole", "Backoff"}[p]
}

// Cause says why a gang was refused or rolled back. Its values are those of a metric's label.
type Cause string

// The causes of a rollback.
const (
	// CauseNoRoom: the proposal proves that the quorum cannot be placed.
	CauseNoRoom Cause = "no_room"
	// CauseSharedClaim: members would wait for each other for ever, over a claim or volume that they share.
	CauseSharedClaim Cause = "shared_claim"
	// CauseUnschedulable: a member that the quorum needs fits on no node.
	CauseUnschedulable Cause = "unschedulable"
	// CauseCycleFailed: a scheduling cycle of a member that the quorum needs ended without a result, again and again:
	// another plugin refuses it or fails.
	CauseCycleFailed Cause = "cycle_failed"
	// CauseTimeout: the quorum was not complete in time, or a member that it needs did not come.
	CauseTimeout Cause = "timeout"
	// CauseRefused: a member was refused or failed after it had been given a node.
	CauseRefused Cause = "refused"
	// CauseBindRefused: the API server would refuse a member's bind.
	CauseBindRefused Cause = "bind_refused"
	// CauseNotPrepared: a member that was released was preempted, failed to be prepared for its bind, or was
	// not prepared in time.
	CauseNotPrepared Cause = "not_prepared"
	// CauseNodeGone: a node is gone that a member was to have.
	CauseNodeGone Cause = "node_gone"
	// CauseMembersLeft: fewer members than minMember are left, in the gang or in the round.
	CauseMembersLeft Cause = "members_left"
	// CauseGroupGone: the PodGroup was deleted or became invalid.
	CauseGroupGone Cause = "group_gone"
	// CauseOtherGroup: other groups of the composite group, without which it is not to be bound, have been sent back.
	CauseOtherGroup Cause = "other_group"
)

// Capacity reports whether room in the cluster may cure the cause.
func (c Cause) Capacity() bool {
	switch c {
	case CauseNoRoom, CauseUnschedulable, CauseTimeout:
		return true
	case CauseSharedClaim, CauseCycleFailed, CauseNotPrepared, CauseRefused, CauseBindRefused, CauseNodeGone, CauseMembersLeft, CauseGroupGone, CauseOtherGroup:
	}
	return false
}

// Reason says what keeps a gang's members out of the scheduling queue.
type Reason string

// The reasons to wait. Some are also the reasons of the events that say so.
const (
	// ReasonNone: nothing keeps them.
	ReasonNone Reason = ""
	// ReasonNotFound: the PodGroup does not exist.
	ReasonNotFound Reason = "PodGroupNotFound"
	// ReasonInvalid: the PodGroup asks for something that cannot be.
	ReasonInvalid Reason = "InvalidPodGroup"
	// ReasonTooFew: fewer than minMember live members exist.
	ReasonTooFew Reason = "TooFewMembers"
	// ReasonQueued: the gang waits to be admitted, or the member for another that goes first.
	ReasonQueued Reason = "GangQueued"
	// ReasonSpare: the member is not needed for the quorum, and is scheduled when that is in.
	ReasonSpare Reason = "GangSpareMember"
	// ReasonBackoff: the gang was refused or rolled back a short while ago.
	ReasonBackoff Reason = "GangBackoff"
	// ReasonUnknown: the pod has not been seen as a member, or not any more.
	ReasonUnknown Reason = "UnknownMember"
)

// Config is what is the same for all gangs.
type Config struct {
	// Timeout is how long the first waiting member waits for the quorum when the gang's Spec does not say.
	Timeout time.Duration
	// PrepareTimeout is how long the members that were released have to be prepared for their binds. It must
	// be longer than any plugin prepares a pod.
	PrepareTimeout time.Duration
	// RecoveryTimeout is how long a gang may be bound in part before it counts as stranded.
	RecoveryTimeout time.Duration
	// InitialBackoff follows the first rollback, and doubles with each further one up to MaxBackoff.
	InitialBackoff, MaxBackoff time.Duration
	// Native says that the members belong to a PodGroup of scheduling.k8s.io: kube-scheduler places them together,
	// without a scout and a proposal, and wakes them.
	Native bool
	// Rehearse says that waiting members are released only when [Gang.Rehearsed] has said of one of each template that
	// its bind would be accepted.
	Rehearse bool
	// Hierarchy has the composite groups that gangs are part of; nil means that they depend on no other gang.
	Hierarchy *Hierarchy
	// Cycles counts the scheduling cycles of all pods that have begun; nil means that none is known of.
	Cycles func() int64
	// Jitter returns a number in [0, 1): that share of half the backoff is taken off, so that gangs that got into
	// each other's way do not meet again.
	Jitter func() float64
}

// Spec is what a PodGroup asks for.
type Spec struct {
	// UID tells a PodGroup from its predecessor of the same name.
	UID types.UID
	// MinMember is the quorum. Below 1 it is invalid, and members wait for it to be corrected.
	MinMember int
	// Parent is the composite group that a native gang is part of; the zero value for none. See [Hierarchy].
	Parent types.NamespacedName
	// Timeout is how long the first waiting member waits for the quorum; 0 means the Config's.
	Timeout time.Duration
	// Awaits says that the gang asks for room for members that may not exist yet, so that its first one needs a
	// proposal even if it is the only one of the quorum.
	Awaits bool
	// OneByOne says that each member which is to replace one that a running gang has lost is scheduled like any pod.
	// Otherwise the gang has to have its quorum, with all of them.
	OneByOne bool
	// Revision stands for everything else of the PodGroup that a proposal depends on.
	Revision string
}

// Pod is what the API server shows of a pod that is neither terminating nor finished.
type Pod struct {
	// Bound is true when the pod has a node.
	Bound bool
	// Held is true for a pod without a node that nothing here can schedule: it has scheduling gates, a claim of it does
	// not exist, or it belongs to another scheduler.
	Held     bool
	Template Template
}

// Template tells which members are copies of each other: the bind of one of them is rehearsed.
type Template struct {
	// Controller is the UID of the pod's controller; empty without one.
	Controller types.UID
	// Needs is equal for pods that ask for the same.
	Needs string
}

// Round is what a proposal asks for.
type Round struct {
	// Members are those that are to be scheduled; First those of them that go first, the scout among them.
	Members, First []types.UID
}

// Rollback tells of a gang that was refused, or of a round that failed.
type Rollback struct {
	Cause Cause
	// Member is the pod whose failure ended the round; empty when it was not one pod's.
	Member types.UID
	// Detail says in words what went wrong, in numbers that hold for this moment.
	Detail string
	// Reason says the same in words that stay the same while the reason does; empty when Detail does.
	Reason string
	// Rejected is how many members had a node and were sent back.
	Rejected int
	// Rounds is how many rounds have failed one soon after another, for which this refusal makes up: the backoff is as
	// many times as long. 0 when each has had its own.
	Rounds int
	// Backoff is how long the gang stays away unless something changes; 0 when it waits for something else.
	Backoff time.Duration
}

// ConditionMessage is what becomes a condition of the pods: each change of them is a write.
func (r *Rollback) ConditionMessage() string {
	if r.Reason != "" {
		return r.Reason
	}
	return r.Detail
}

// Actions is what [Gang.Act] asks its caller to do.
type Actions struct {
	// Probe lists the members that wait while the quorum is complete, with those of the gangs that go together with
	// this one. The caller looks which of them really wait in Permit for this plugin alone, and passes those to
	// [Gang.Release].
	Probe []types.UID
	// Rehearse lists the members whose binds are to be rehearsed; see [Gang.Rehearsed].
	Rehearse []Rehearsal
	// Reject lists the members that may still wait in Permit, or be prepared for their bind, and are to be
	// sent back. A member stays listed until its Unreserve, because the framework lists a pod as waiting,
	// and as one that is being prepared, only after Permit returned.
	Reject []types.UID
	// Activate lists the members to be moved to the active queue.
	Activate []types.UID
	// Rollback is the last failure since the previous call, nil when there was none.
	Rollback *Rollback
	// Rollbacks are the causes of all failures since the previous call, refused cycles of a native gang among them.
	Rollbacks []Cause
	// BindFailed is true when a member's bind has failed since the previous call.
	BindFailed bool
	// BecameWhole is true when the quorum has been bound through this gang's own release since the
	// previous call; TimeToWhole is then the time from the quorum's existence to that.
	BecameWhole bool
	TimeToWhole time.Duration
	// Next is when Act is to be called again although nothing happened; zero means never.
	Next time.Time
}
