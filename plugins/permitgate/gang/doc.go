// Package gang is the state machine of one gang: which of its pods may be scheduled, wait, be let go, or
// be sent back, and when.
//
// It is pure: it knows neither the scheduling framework nor informers nor a clock. A caller feeds it
// what happens (the PodGroup and the pods as the API server shows them, and the steps of the members'
// scheduling and binding cycles) together with the time, and asks with [Gang.Act] what is to be done.
// Pods are known by UID alone. A Gang is not safe for concurrent use.
//
// # Phases
//
//	            quorum exists            a member waits          minMember released or bound
//	Pending ------------------> Gathering ----------> Waiting ------------------------> Releasing
//	 ^   ^                       ^     |                |  ^                                 |
//	 |   |   time, room or a new |     | quorum out of  |  | a bind failed                   | minMember
//	 |   |   PodGroup            |     | reach          |  +---------------------------------+ bound
//	 |   |                       |     v                |                                    v
//	 |   +-------------------- Backoff <----------------+                                  Whole
//	 |     PodGroup or members gone      quorum out of reach, or timeout                     |
//	 +---------------------------------------------------------------------------------------+
//	                               fewer than minMember members are left
//
// Pending: the PodGroup is missing or invalid, or fewer than minMember members live. Gathering: members
// go through scheduling cycles, none waits. Waiting: at least one has a node and waits in Permit; the
// rest of the quorum has until the deadline. Releasing: the quorum has been let go and binds. Whole: it
// is bound. Backoff: the last round failed, nothing is held, nobody is admitted until time has passed or
// room has been made.
//
// A round is the time from entering Gathering to leaving Waiting. A member that fits nowhere has failed
// for the round. The round goes on as long as the members that have not failed can still make up the
// quorum: in a gang of exactly minMember members the first failure ends it, a gang with members to
// spare can lose some.
//
// # Members
//
//	Held      has a scheduling gate, or belongs to a scheduler that does not run this gang; not counted
//	Idle      somewhere in the queue or in a scheduling cycle
//	Failed    like Idle, but unschedulable in this round
//	Waiting   Permit has answered Wait
//	Released  let go from Permit; other plugins prepare it for its bind
//	Prepared  has come to the barrier before the bind, and waits there for the quorum
//	Committed past the barrier; nothing but a failure of the bind itself keeps it from being bound
//	Bound     has a node, by the API server's word or by that of the binding cycle
//	Done      has succeeded, and is to count as if it were still bound
//	Gone      terminating or deleted while it still waited; forgotten once it has been unreserved
//
// Terminating and finished pods are not members, with one exception: a pod that has succeeded has had its
// turn with the others, and when the caller says so it goes on counting, or else a replacement for
// another member could never run again. A rollback turns Waiting into Idle; the pod still holds
// what it reserved until its Unreserve, and is to be rejected until then.
//
// # What holds
//
// The quorum is counted over Bound, Done, Committed, Prepared, Released and Waiting members. No member becomes
// Released unless, with all that are past Waiting at that moment, at least minMember are; no member becomes
// Committed unless at least minMember are Committed, Bound or Done with it; and a rollback leaves no member
// Waiting, Released or Prepared. These are invariants 4 and 5 of the design.
//
// A gang whose binds are rehearsed (see [Gang.SetRehearse]) lets go only members whose rehearsal has passed.
//
// # Plans
//
// With Config.Planned, members go where a plan for the whole quorum has a slot for them. While the quorum lacks
// slots one member at a time is woken; in its cycle [Gang.Place] asks for the plan, and the caller answers with
// [Gang.SetPlan] or [Gang.NoPlan]. A slot is kept from then on until its member is bound, has failed or is gone,
// and no longer than the round: in Pending, Backoff and Whole there are none. [Gang.Replan] has the plan made
// anew around the members that have a node.
//
// # Non-goals
//
// The package does not choose nodes, and it does not know how many of the gang's members fit.
package gang
