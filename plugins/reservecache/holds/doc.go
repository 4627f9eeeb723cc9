// Package holds records what is held on nodes, for which pods, and which pods use it.
//
// It is pure: it knows neither informers nor clocks nor the scheduling framework. A [Claim] says who holds capacity and on what
// terms. What a claim has on one node is a [Hold]: an amount, and the consumers, which are pods that each took part of it. Most
// claims have slots: every amount and part is then a number of slots of one size. Other claims hold amounts as such, of which a pod
// takes what it lacks. [NodeHolds] is what all claims have on one node. It never changes: a change of the holds makes a new one, so
// that readers need no lock.
//
// # Contract
//
// What is unused is never stored. It is the amount less what has been taken by the consumers on the node that the
// reader looks at: the NodeInfo of a scheduling cycle, or the ledger's node between cycles. A consumer that is a
// victim in a what-if search makes its slot unused there, and only there. A pod fits on a node (see [NodeHolds.Fit]) iff
//
//	request + unused amounts that it may not use <= allocatable - requested
//
// in each resource that both sides name, and in the number of pods. Resources without
// holds are not checked.
//
// [Holds.Take] records a consumer and [Holds.Leave] removes it, so that nothing is used twice. Only the owner of the claims changes
// what they have, with [Holds.Change]; it checks the room, since only the reader of a node can.
//
// A Holds may be used from several goroutines: one mutex guards all of it, and no method calls back. A [View] belongs to one
// goroutine at a time.
//
// # Non-goals
//
// The package does not choose nodes for slots: package placement does. It does not know which pods exist: the caller that learns that
// a consumer is gone says so.
package holds
