// Package reservations serves ZoneReservations to the ReserveCache plugin: it watches them, has their slots held in the
// ledger, tells which pods own slots, and writes their status.
//
// Which nodes the slots go to is decided by package placement, and what a pod may take by package ledger. This
// package knows reservations as objects: which apply, which pod belongs to which, what became of them.
//
// # Contract
//
// There is one [Reservations] per scheduler; its profiles share it. A missing CustomResourceDefinition, a
// reservation that can not be applied and a missing permission turn off what depends on them and nothing else: no method
// stops or fails a scheduling cycle.
//
// A pod belongs to at most one reservation: of those that name it, to the one that was created first, and of those
// created at the same second, to the one that comes first by name.
//
// Standby replicas know the reservations and place nothing. A process starts to place slots when it leads or
// when its first scheduling cycle begins, whichever is first: that cycle waits for it, bounded. Slots then go to the
// nodes that the status names, as far as there is room. What was used then counts as ordinary pods.
//
// A worker brings the slots in line when a reservation, a node or the use of a slot changes. Reservations that
// lack slots take room that has become free at the beginning of each scheduling cycle, ahead of the cycle's pod, and
// without cycles when the worker hears of it.
//
// # Concurrency
//
// All methods may be called from any goroutine. OwnerOf and Any are called under the lock of the scheduling queue and take
// none. The [Waker] is called with no lock held.
//
// # Non-goals
//
// It evicts nothing, and does not schedule: it never looks at pods other than to tell whom they belong to.
package reservations
