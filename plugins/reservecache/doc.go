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
// The packages below call a reservation a claim. Its owners are the pods that may use it. It holds slots (equal pieces)
// or, on named nodes, one amount each. Its mode is a [holds.Use]: a Headroom owner uses held capacity only when it does
// not fit elsewhere (UseLast), a Guarantee's owner prefers it (UseFirst), and with ownerPolicy Required an owner must
// run in it (UseOnly).
//
// Filter and Reserve judge room by the NodeInfos of the cycle: a pod fits if its request plus what is held unused for
// others fits into what the node has left. Claims of a lower priority do not count. With ownerPolicy Required the
// request must also fit into what is unused of the pod's own hold. Package holds has the formula. Which pod uses which
// slot is not recorded: a Headroom owner that needs slots lowers their number at Reserve. The ledger serves decisions
// outside of a cycle, with one exception: to reserve a member of a native pod group, Reserve reads the ledger, because
// the snapshot does not show the members that were reserved before it.
//
// Each scheduling cycle waits until the handlers have synced once, since the scheduler waits only for its own; after a
// limited time it fails with an error. The cycle of a pod group calls Reserve and Unreserve as rehearsals, in which
// they do nothing; the framework calls them again for each member.
//
// # Non-goals
//
// The plugin evicts no pods. It scores nodes only for a pod that has to take part of an amount (the node where the
// least of it would be left comes first) and for one that outranks holds (nodes where it fits only in held room come
// last).
package reservecache
