// Package permitgate is the scheduler plugin PermitGate: a gang of pods binds whole or not at all.
//
// A gang is a PodGroup of scheduling.x-k8s.io/v1alpha1 and the pods of its namespace that name it in the
// label scheduling.x-k8s.io/pod-group, as for the Coscheduling plugin of kubernetes-sigs/scheduler-plugins.
//
// # Contract
//
// docs/permitgate.md says what becomes of a gang, step by step. What the code relies on:
//
//   - A pod without the label passes through every extension point untouched, but it does not come to nodes that a starving
//     gang keeps. A pod with spec.schedulingGroup is a member of a native gang, which kube-scheduler places.
//   - A gang that waits holds only the nodes of its round, of a release, or of a preemption. One that starves keeps nodes.
//   - No member is released unless at least minMember members are bound or wait with it, kept by this plugin alone; none
//     is bound unless a quorum is prepared and nothing can stop its binds.
//   - When the quorum can no longer be reached, every waiting member is rejected, so that Unreserve frees what it took,
//     and the gang backs off: exponentially, with jitter.
//   - While a gang lacks more than one member, members do not preempt one by one, since that could evict pods without
//     placing the gang.
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
//	attempt.go      what a member is tried on
//	propose.go      what the scout's cycle decides for all members: the proposal, for what a gang asks (gangrequest.go)
//	                on the nodes as it may use them (view.go), of resources that the profile counts (countedresources.go)
//	roundplan.go    the nodes that a round's members are tried on; packing.go: within one domain
//	gangs.go        the state of the gangs of both APIs, each with its objects (entry.go), behind one lock; settle.go:
//	                what follows from each change
//	groupcycle.go   the pod-group cycles of native gangs; nativecycle.go: what they are told
//	handlers.go     the informers' events; claims.go: claims of members that do not exist
//	queue.go        which gang is admitted next; freedroom.go: which refused gangs are looked at again; pacing.go: how
//	                soon, and which leave what has become free to others
//	worker.go       has done what the gangs decide (execute.go)
//	victims.go      preemption (package preempt)
//	starving.go     which nodes a starving gang keeps; nodeclaim.go: from whom
//	podgroup        what pods and PodGroups say; native: PodGroups of Kubernetes' own API
//	serve           statuses, events and conditions
//
// # Non-goals
//
// The plugin does not order the queue. Preemption of a bound gang's members by other pods is upstream's.
package permitgate
