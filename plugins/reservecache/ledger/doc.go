// Package ledger keeps the account of what is assumed, bound and held on each node of a cluster.
//
// It is pure: it knows objects, not informers, contexts, clocks or the scheduling framework. The caller
// tells it what the scheduler decided (AssumePod, FinishBinding, ForgetPod) and what the API server says
// (AddPod, UpdatePod, RemovePod, AddNode, UpdateNode, RemoveNode), in whatever order these arrive, and
// takes snapshots.
//
//	           Assume            Add                  Update
//	(none) ------------> Assumed --------> Added <----------+
//	  ^                   |  |               |              |
//	  |   Forget / Expire |  |   Remove      | Remove       |
//	  +-------------------+  +-------------->+--> (none) ---+
//
// # Contract
//
// Pods are keyed by UID. What the API server says wins over what was assumed: Add confirms an assumed pod
// wherever the event says it is, Remove frees it in any state, at once. ForgetPod and ExpirePod undo an
// assumption and nothing else: they do nothing to a pod that is Added, that sits on another node, or that
// is not known. So any interleaving of Add, Unreserve, Delete and PostBind that keeps a pod's Add before its
// Delete, as every informer does, ends in the same state. An Add after a Delete is believed: the API server
// shows the pod.
//
// Nodes are kept in the order of their last change, each with the generation of that change, so that
// [Ledger.UpdateSnapshot] visits only what has changed since the snapshot was last brought up to date. A
// snapshot lists nodes zone by zone, round-robin. A node that was removed while pods are still accounted
// to it stays as a ghost, absent from snapshots, until the last of them is gone or the node returns.
//
// A Ledger may be used from several goroutines: one mutex guards all of it, no method blocks on anything
// else, and none calls back, save the functions that tell which pods a cycle sees on a node. A [Snapshot]
// and a [HoldsView] belong to their owners and are not synchronized. Objects that were given to the ledger
// must not be changed afterwards; the ones that it returns are the same objects.
//
// # Holds
//
// A claim, of a ZoneReservation or of a gang, holds slots on nodes: room for so many pods of a size. PlaceHolds
// and ChangeHolds change the slots of a claim in one step, all or none, and check each node on which it gets
// more. AssumePodOnHold lets a pod onto a node only beside the unused slots that it may not use, by the rule of
// [Fits], and records the slot that it takes, so that no slot is used twice.
//
// What is unused is never stored: it is the slots less the consumers that are present on the node that a reader
// looks at. A consumer that is a victim of preemption in somebody's simulation makes its slot unused there, and
// only there. In the ledger itself a consumer is one until it is forgotten, removed or moved to another node;
// being confirmed changes nothing. A slot for one pod is used by that pod's being there.
//
// Readers see holds as [NodeHolds], which never change, through snapshots and, without the pods, through a
// [HoldsView]. Every change of holds is a change of the node, so that both find it by its generation.
//
// Holds can lose their room: a node shrinks, a pod is bound by hand or outranks the claim. Nothing is dropped
// then; [NodeHolds.Excess] tells which slots have no room, by rank of the claims, and TakeNews that something
// happened. A node that is removed takes its holds with it, and TakeNews tells that too. The pods that used them
// stay as ordinary pods, and the slots do not come back with the node.
//
// Unfilled claims stand in one queue by age. Reservations get what they can; of gangs, the oldest one only may
// get less than it wants.
//
// # Non-goals
//
// The ledger does not score, so it has no defaults for pods without requests. It does not track ports,
// volumes, images or affinity. It does not choose nodes for slots: package placement does. It never reads the
// API server: whoever expires a pod does so first.
package ledger
