// Package permitgate is the scheduler plugin PermitGate: a gang of pods binds whole or not at all.
//
// A gang is a PodGroup of scheduling.x-k8s.io/v1alpha1 and the pods of its namespace that name it in the
// label scheduling.x-k8s.io/pod-group, as for the Coscheduling plugin of kubernetes-sigs/scheduler-plugins.
//
// # Contract
//
//   - A pod without the label passes through every extension point untouched, but it does not take room that a starving
//     gang collects, nor that of a member which has just lost its node. A pod with spec.schedulingGroup is package
//     native's.
//   - A member waits in PreEnqueue until its PodGroup exists, is valid, and has minMember live members:
//     pods that are neither terminating nor finished nor held by a scheduling gate.
//   - For each priority, one gang at a time sends a member, the scout, through a scheduling cycle. The scout's
//     PreFilter makes a proposal (package proposal): a proof that the quorum cannot fit now, or a node for each
//     missing member as a hint. A gang that is refused backs off and holds nothing.
//   - The members of a proposed gang gather: each goes through an ordinary cycle on its proposed node and a few
//     others, then on all nodes if these refuse it. The filters decide. Proposals of other gangs leave the
//     proposed room out; other pods may take it.
//   - A member that found a node waits in Permit. When minMember members are bound or wait there, and only this
//     plugin keeps them, all are released together.
//   - While they wait, the bind of one of each pod template is rehearsed. Released members wait once more,
//     in PreBind, until a quorum is prepared and nothing can stop its binds. If a member that the quorum needs is
//     lost before that, no member is bound.
//   - When the quorum can no longer be reached (a timeout; a member that fits nowhere, was deleted or refused; a
//     deleted PodGroup), every waiting member is rejected, so that Unreserve frees what it took, and the gang
//     backs off: exponentially, with jitter.
//   - While a gang lacks more than one member, members do not preempt one by one, since that could evict pods without
//     placing the gang. The gang preempts as a whole (package preempt): the leader evicts pods of a lower priority
//     once the filters accept the quorum without them, and nominations in the API keep the room for the gang.
//   - Once the quorum is complete, members beyond minMember schedule like ordinary pods.
//   - PreEnqueue, queueing hints and SignPod make no call to the scheduling queue, to a waiting pod or to the API
//     server, and neither does code that holds the plugin's lock: worker goroutines make these calls.
//
// # Where to look
//
// The state machine of one gang is in package gang, which knows neither framework nor clock. This package translates
// the framework's calls and the informers' events into its inputs, and carries out its decisions. PreFilter draws a
// member's way.
//
//	prefilter.go, postfilter.go, reserve.go ...   the extension points, in upstream's order
//	propose.go      the proposal, for what a gang asks (gangrequest.go) on the nodes as it may use them (view.go), within
//	                what the profile's filters refuse (profilefilters.go)
//	roundplan.go    the nodes that a round's members are tried on; packing.go: within one domain
//	gangs.go        the state of all gangs, each with its objects (entry.go), behind one lock
//	handlers.go     the informers' events; claims.go: claims of members that do not exist
//	queue.go        which gang is admitted next; freedroom.go: which refused gangs are looked at again
//	worker.go       has done what the gangs decide (package execute)
//	victims.go      preemption (package preempt); keptroom.go: kept nodes whose nominations are missing for a moment
//	collect.go      room that a starving gang collects
//	native          gangs of Kubernetes' own API, with the same state machine
//	serve           statuses, events and conditions
//
// # Non-goals
//
// The plugin does not order the queue. Preemption of a bound gang's members by other pods is upstream's.
package permitgate
