// Package reservecache is the ReserveCache plugin: it keeps a ledger of what is assumed and bound on each node, and holds
// capacity for the owners of ZoneReservations.
//
// # Contract
//
// Package ledger has the ledger, and does not know the framework. This package feeds it: Reserve assumes, Unreserve
// forgets, PostBind finishes, and the handlers of the pod and node informers pass on what the API server says. Package
// holds records what is held where, placement chooses their nodes, and serve watches the reservations and
// writes their status. All profiles of a scheduler share one [Shared].
//
// Filter and Reserve judge room by the NodeInfos of the cycle alone: a pod fits if its request plus what is held unused for others
// fits into what the node has left. The ledger serves decisions outside of a cycle.
//
// The first scheduling cycle waits, for a limited time, until the handlers have synced, since the scheduler waits only for
// its own handlers. In pod-group cycles Reserve and Unreserve are rehearsals: they change neither ledger nor holds.
//
// # Non-goals
//
// The plugin evicts no pods. It scores nodes only for a pod that has to take part of an amount: the node where the least of it would
// be left comes first.
package reservecache
