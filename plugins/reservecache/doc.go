// Package reservecache is the ReserveCache plugin: it keeps a ledger of what is assumed and bound on each node, and
// holds capacity for the owners of ZoneReservations.
//
// # Contract
//
// Package ledger has the ledger, and does not know the framework. This package feeds it: Reserve assumes, Unreserve
// forgets, PostBind turns assumed into bound, and the handlers of the pod and node informers pass on what the API
// server says. Package holds records what is held where, placement chooses their nodes, and serve watches the
// reservations and writes their status. All profiles of a scheduler share one [Shared].
//
// A reservation is a claim to the packages below. Its owners are the pods that may use it. It holds slots, which are
// pieces of one size, or an amount on each of given nodes. Owners use Headroom last (holds.UseLast) and a Guarantee
// first (UseFirst); those of a Required reservation run in it only (UseOnly).
//
// Filter and Reserve judge room by the NodeInfos of the cycle: a pod fits if its request plus what is held unused for
// others fits into what the node has left. Which pods use what is not recorded (package holds has the formula). Only
// for a member of a pod group does Reserve ask the ledger, since the snapshot does not show the members before it.
// Apart from that, the ledger serves decisions outside of a cycle.
//
// The first scheduling cycle waits, for a limited time, until the handlers have synced, since the scheduler waits only
// for its own handlers. In pod-group cycles Reserve and Unreserve change neither ledger nor holds: the framework
// reserves again afterwards.
//
// # Non-goals
//
// The plugin evicts no pods. It scores nodes only for a pod that has to take part of an amount (the node where the
// least of it would be left comes first) and for one that outranks holds (nodes where it fits only in held room come
// last).
package reservecache
