// Package reservecache is the ReserveCache plugin: it keeps a ledger of what is assumed and bound on each node, and
// holds capacity for the owners of ZoneReservations.
//
// # Contract
//
// Package ledger has the ledger, and does not know the framework. This package feeds it: Reserve assumes, Unreserve
// forgets, PostBind confirms, and the handlers of the pod and node informers pass on what the API server says. Package
// holds records what is held where, and says whether that leaves room for a pod. Package placement chooses the nodes of
// slots. Package serve watches the reservations and writes their status. Package waiting knows the pods that holds keep
// out, so that freed room wakes as many as could fit. All profiles of a scheduler share one [Shared].
//
// The packages below call a reservation a claim. Its owners are the pods that may use it. It holds slots, which are
// pieces of one size, or an amount on each of given nodes. Its mode is a [holds.Use]: owners use what a Headroom
// reservation holds last (UseLast) and what a Guarantee holds first (UseFirst); those of a Required reservation run
// in it only (UseOnly).
//
// Filter and Reserve judge room by the NodeInfos of the cycle: a pod fits if its request plus what is held unused for
// others fits into what the node has left. Which pods use what is not recorded (package holds has the formula). The
// ledger serves decisions outside of a cycle, with one exception: to reserve a member of a native pod group, Reserve
// reads the ledger, because the snapshot does not show the members that were reserved before it.
//
// The first scheduling cycle waits, for a limited time, until the handlers have synced, since the scheduler waits
// only for its own handlers. The cycle of a pod group calls Reserve and Unreserve as rehearsals, in which they do
// nothing; the framework calls them again for each member.
//
// # Non-goals
//
// The plugin evicts no pods. It scores nodes only for a pod that has to take part of an amount (the node where the
// least of it would be left comes first) and for one that outranks holds (nodes where it fits only in held room come
// last).
package reservecache
