// Package permitgate is the scheduler plugin PermitGate: a gang of pods binds whole or not at all.
//
// A gang is a PodGroup of scheduling.x-k8s.io/v1alpha1 and the pods of its namespace that name it in the
// label scheduling.x-k8s.io/pod-group, as for the Coscheduling plugin of kubernetes-sigs/scheduler-plugins.
//
// # Contract
//
//   - A pod without the label, and a pod with the native spec.schedulingGroup, passes through every
//     extension point untouched.
//   - A member waits in PreEnqueue until its PodGroup exists, is valid, and has minMember live members:
//     pods that are neither terminating nor finished nor held by a scheduling gate.
//   - The first member that comes to a scheduling cycle plans the whole gang (package plan). Without a plan the
//     gang backs off and nothing is held. With one, the members' room is held where the pack has a
//     ledger for that, and each member goes to its planned node only. What another plugin refuses is planned around.
//   - A member that found a node waits in Permit. When minMember members are bound or wait there, and
//     nothing but this plugin keeps them, all are let go together.
//   - While they wait, the binds of the members are rehearsed where something in the API server may refuse
//     them. A member that was let go waits once more, in PreBind, until a quorum is prepared and nothing can
//     stop its binds: when one is lost before that, nobody is bound.
//   - When the quorum can no longer be reached, by a timeout, a member that fits nowhere, a member that
//     was deleted or refused, or a PodGroup that went away, every waiting member is rejected, so that
//     the plugins' Unreserve frees what it took, and the gang backs off: exponentially, with jitter.
//   - While a gang lacks more than one member, no member preempts for itself: a preemption that does not place the
//     gang only destroys. The gang preempts as a whole: pods of a lower priority are evicted, by the leader, when it has a
//     complete plan without them, and its room is held in the ledger before.
//   - Members beyond minMember schedule like ordinary pods once the quorum is in.
//   - No call to the scheduling queue, to a waiting pod or to the API server is made from PreEnqueue, a
//     queueing hint or SignPod, nor with the plugin's lock held: a worker goroutine does all of that.
//
// The state machine of one gang is in the package gang, which knows neither framework nor clock. This
// package translates the framework's calls and the informers' events into its inputs, and carries out
// what it decides.
//
// # Non-goals
//
// The plugin does not order the queue. Preemption of a bound gang's members by other pods is upstream's.
package permitgate
