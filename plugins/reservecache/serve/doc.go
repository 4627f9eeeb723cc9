// Package serve serves ZoneReservations to the ReserveCache plugin: it watches them, knows which pods are owners, says
// how reservations stand, and writes their status.
//
// Package floor decides what is held. This package handles the objects: which reservations apply, and which pod belongs
// to which.
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
// What applies is a [Claims], which is replaced and never changed: scheduling cycles take it over. How it stands is
// published from the floor of the cycles, and while there are no cycles from a floor that is made of the ledger, begins
// with what was published last, and is thrown away. That is made again when the ledger or a reservation has changed.
//
// The status lists slots by node as a seed for claims that compete: a process that starts begins with it. It names the
// Lease under which its writer leads; another scheduler leaves the reservation alone while that Lease is renewed.
//
// The status is written at once when what is held changes, and all else on a tick of ten seconds. The worker rests nine
// times as long as it has worked.
//
// # Concurrency
//
// All methods may be called from any goroutine. Claims takes no lock. When pods are activated, no lock is held.
//
// # Non-goals
//
// The package evicts no pods and does not schedule. It looks at pods only to decide which reservation they belong to,
// and for priorities.
package serve
