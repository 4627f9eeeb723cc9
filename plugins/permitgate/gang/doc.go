// Package gang is the state machine of one gang: which of its pods may be scheduled, must wait, are released, or
// are sent back, and when.
//
// It is pure: it knows neither the scheduling framework nor informers nor a clock. A caller feeds it
// what happens (the PodGroup and the pods as the API server shows them, and the steps of the members'
// scheduling and binding cycles) together with the time, and asks with [Gang.Act] what to do.
// Pods are identified by UID alone. A Gang is not safe for concurrent use. An input costs the same for a gang of
// two and one of thousands, except for those that concern all members: a round's start, release and rollback.
//
// # Phases
//
//	           quorum exists          proposal         a member waits         minMember released
//	Pending ------------------> Queued ------> Gathering ------> Waiting ----------------------> Releasing
//	 ^                           ^  |              |                |  ^                              |
//	 |     time, or a change     |  | refused      | rollback       |  | a bind failed                | minMember
//	 |     that may help         |  v              v                |  +------------------------------+ bound
//	 |                          Backoff <---------------------------+                                 v
//	 |       PodGroup or members gone                                                               Whole
//	 +------------------------------------------------------------------------------------------------+
//	                               fewer than minMember members are left
//
// Pending: the PodGroup is missing or invalid, or fewer than minMember members live. Queued: a quorum lives and waits
// to be admitted ([Gang.Admit]). Then one member, the scout, is let into the queue. In its scheduling cycle the caller
// answers with [Gang.Gather] or [Gang.Refuse]. Gathering: the members go through scheduling cycles, none holds a node.
// Waiting: at least one member has a node and waits in Permit; the rest of the quorum has until the deadline.
// Releasing: the quorum has been released and binds. Whole: the quorum is bound. Backoff: the gang was refused or
// rolled back and holds nothing, until time has passed or something has changed that may help it.
//
// If only one member is missing, and none waits, that one depends on no other. Then the gang is Gathering without a
// round, and the member is scheduled like any pod.
//
// # Rounds
//
// A round begins with Gather and ends with the release or a rollback. One member for each pod template goes first; the
// others follow when these have found nodes. A member that fits nowhere leaves the round. A member whose cycles end
// without a result ([Gang.Enqueue]) leaves it too. The round goes on as long as its members can make up the quorum. It
// also ends when members wait, and no other makes a step while other pods have cycles.
//
// After a failed round or release the next one begins when something has changed that may help it, or when the backoff
// is over, but not before ten times as long as it took, and as members held something, to the last Unreserve. So what
// is held for nothing is at most a tenth of the time. For the time in which its members took steps, the first lost
// round since the gang was whole costs at most MaxBackoff, and each further one twice as much, since a slow scheduler
// makes rounds long. What gangs give back is no change, so that gangs that do not fit come to rest.
//
// # Members
//
//	Held      has a scheduling gate or lacks a claim, or belongs to a scheduler that does not schedule this gang; not counted
//	Idle      somewhere in the queue or in a scheduling cycle
//	Waiting   Permit has answered Wait
//	Released  released from Permit; other plugins prepare it for its bind
//	Prepared  has come to the barrier before the bind, and waits there for the quorum
//	Committed past the barrier; only a failure of the bind itself keeps it from being bound
//	Bound     has a node, by the API server's word or by that of the binding cycle
//	Succeeded has succeeded, and is to count as if it were still bound
//	Gone      terminating or deleted while it still waited; forgotten once it has been unreserved
//
// Terminating and finished pods are not members, with one exception: if the caller says so, a pod that has succeeded
// still counts, because it has run with the others. Otherwise a replacement for another member could never run. A
// rollback turns Waiting, Released and Prepared into Idle; the pod still holds what it reserved until its Unreserve,
// and is to be rejected until then.
//
// # What holds
//
// The quorum is counted over Bound, Succeeded, Committed, Prepared, Released and Waiting members. No member becomes
// Released unless, with all that are past Waiting at that moment, at least minMember are; no member becomes
// Committed unless at least minMember are Committed, Bound or Succeeded with it; and a rollback leaves no member
// Waiting, Released or Prepared.
//
// With [Config.Rehearse], waiting members are released only when the bind of one member of each template among them has
// been rehearsed: of one whose last rehearsal was refused, if the quorum needs it. The time that rehearsals take does
// not count against the round's deadline.
//
// # Native gangs
//
// With [Config.Native], the gang is a PodGroup of scheduling.k8s.io. kube-scheduler sends its members through one
// cycle, which takes the place of scout and proposal: the round begins when the first of them has a node. From there on
// all is the same, but that kube-scheduler wakes the members. It has no backoff for members that come back from Permit
// or later, and counts those that are still on their way as placed. So [Gang.Enqueue] keeps all of them out from the
// moment that one has lost its node until the last is back in the queue, and the backoff is over.
//
// # Hierarchies
//
// With [Spec.Parent], a native gang is part of a composite group, which asks for a number of the groups below it.
// Members become Released, and Committed, only with a quorum of their own gang and if each composite group above it has
// the groups that it asks for, which take the same step at the same time or have taken it; see [Hierarchy]. A gang
// whose members hold nodes that these cannot use any more is rolled back.
//
// # Non-goals
//
// The package does not choose nodes, and it does not know how many of the gang's members fit.
package gang
