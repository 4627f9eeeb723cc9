// Package ledger keeps the account of what is assumed and bound on each node of a cluster.
//
// It is pure: it knows objects, not informers, contexts, clocks or the scheduling framework. The caller
// passes it what the scheduler decided (AssumePod, ForgetPod) and what the API server says
// (AddPod, UpdatePod, RemovePod, AddNode, UpdateNode, RemoveNode), in whatever order these arrive, and
// takes snapshots.
//
//	           Assume            Add                  Update
//	(none) ------------> Assumed --------> Added <----------+
//	  ^                   |  |               |              |
//	  |            Forget |  |   Remove      | Remove       |
//	  +-------------------+  +-------------->+--> (none) ---+
//
// # Contract
//
// Pods are keyed by UID. What the API server says wins over what was assumed: Add confirms an assumed pod wherever the
// event says it is, Remove frees it in any state, at once. ForgetPod undoes an assumption and nothing else: it does
// nothing to a pod that is Added, that sits on another node, or that is not known. So any interleaving of Add,
// Unreserve and Delete that keeps a pod's Add before its Delete, as every informer does, ends in the same state. An
// assumed pod does not expire, as in kube-scheduler's cache. An Add after a Delete is believed: the API server shows
// the pod.
//
// Nodes are kept in the order of their last change, each with the generation of that change, so that
// [Ledger.UpdateSnapshot] visits only what has changed since the snapshot was last brought up to date. A
// snapshot lists nodes zone by zone, round-robin. A node that was removed while pods are still accounted
// to it stays as a ghost, absent from snapshots, until the last of them is gone or the node returns.
//
// A Ledger may be used from several goroutines: one mutex guards all of it, no method blocks on anything else, and none
// calls back. A [Snapshot] belongs to its owner and is not synchronized. Objects that were given to the ledger must not
// be changed afterwards; the ones that it returns are the same objects.
//
// # Non-goals
//
// The ledger does not score, so it has no defaults for pods without requests. It does not track ports, volumes, images
// or affinity. Package floor says what is held on a node for pods that are not there.
package ledger
