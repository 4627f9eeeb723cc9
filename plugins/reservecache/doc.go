// Package reservecache is the ReserveCache plugin: it keeps a ledger of what is assumed and bound on each node, and a
// floor of free room for the owners of ZoneReservations.
//
// # Contract
//
// Package ledger has the ledger, and does not know the framework. This package feeds it: Reserve assumes, Unreserve
// forgets, and the handlers of the pod and node informers pass on what the API server says. Package floor says how many
// slots of each reservation fit beside the pods, and whether that leaves room for a pod. Package serve watches the
// reservations and writes their status. All profiles of a scheduler share one [Shared].
//
// The packages below call a reservation a claim. Its owners are the pods that may use its slots.
//
// Only scheduling cycles change the floor, in PreFilter, from their own NodeInfos: so room is judged by one source, and
// free room is a claim's that lacks slots before the cycle's pod is filtered. Filter answers for its one NodeInfo: a
// pod fits if its request plus the slots that it may not use fits into what the node has left. Nothing is recorded of
// which pod uses which slot; but at Reserve those slots go whose room an owner of headroom needs, which are its own:
// later the pods of the node do not tell which these were. The ledger serves decisions outside of a cycle: the status of
// a cluster in which nothing is scheduled, and queueing hints.
//
// Each scheduling cycle waits until the handlers have synced once, since the scheduler waits only for its own; after a
// limited time it fails with an error. In the cycle of a native pod group the first member brings the floor up to date;
// for the others the snapshot is changed under an unchanged generation, and owners are counted in the NodeInfos. In the
// run of its preemption no member does: its NodeInfos are copies without the victims. Reserve and Unreserve are called
// as rehearsals there, in which they do nothing; the framework calls them again for each member.
//
// # Waking
//
// Queueing hints do the arithmetic of one node. What is held changes without an event: when a reservation changes, or a
// slot moves. Then the worker activates those of the pods that slots have refused which fit on the nodes concerned,
// none before its backoff has ended.
//
// # Non-goals
//
// The plugin evicts no pods. It scores nodes only for a pod that outranks slots: nodes where it fits only in their room
// come last. It does not prefer slots to free room, nor free room to slots.
package reservecache
