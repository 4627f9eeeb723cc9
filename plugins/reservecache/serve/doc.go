// Package serve serves ZoneReservations to the ReserveCache plugin: it watches them, has their slots placed, knows
// which pods are owners, and writes their status.
//
// Package placement decides on which nodes the slots are, and package holds what a pod may take. This package handles
// the objects: which reservations apply, and which pod belongs to which.
//
// # Contract
//
// There is one [Server] per scheduler; its profiles share it. A missing CustomResourceDefinition, a reservation that
// cannot be applied and a missing permission turn off what depends on them and nothing else: no method stops or fails a
// scheduling cycle.
//
// A pod belongs to at most one reservation. Of those that select it, this is the one that was created first or, if
// several were created in the same second, the first by name.
//
// The status is the record of what is held where. Who uses it follows from the pods, by their labels. Standby replicas
// know the reservations and place nothing. A process starts to place slots when it leads or when its first scheduling
// cycle begins, whichever is first; that cycle waits for the slots, but not for ever. The process adopts what the
// status says, as far as there is room. So the same objects mean the same before and after a failover.
//
// A worker updates the slots when a reservation, a node or a pod changes, and wakes pods that freed room may
// help. It rests nine times as long as it has worked.
//
// # Concurrency
//
// All methods may be called from any goroutine. OwnerOf and Any take no lock. When the [Waker] is called, no lock is
// held that it could need.
//
// # Non-goals
//
// The package evicts no pods and does not schedule. It looks at pods only to decide which reservation they belong to,
// and whether they can use its slots.
package serve
