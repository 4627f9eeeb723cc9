// Package lease says which of several schedulers writes a status that all of them could write.
//
// # Contract
//
// A status names the Lease under which its writer leads, as "namespace/name" (leader.Lease). A scheduler that leads
// under another Lease leaves the object alone while the named Lease is renewed, and takes over when it is not. A Lease
// is renewed if its renewTime has changed within its leaseDurationSeconds, by the clock of this process: as in
// client-go's leader election, clocks of two processes are never compared. A Lease that is first seen counts as renewed
// for that long, one that is missing or has no holder does not. A read that fails says nothing, and the object stays
// with the scheduler that it names.
//
// # Non-goals
//
// Schedulers without leader election have no Lease, and are not told apart.
package lease
