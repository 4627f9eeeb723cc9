// Package holds records what is held on nodes, and for which pods.
//
// It is pure: it knows neither informers nor clocks nor the scheduling framework. A [Claim] says who holds capacity and
// on what terms. What a claim has on one node is a [Hold], which is an amount and nothing else. Most claims have slots:
// every amount is then a number of slots of one size. Its [Use] is its reservation's mode. [NodeHolds] is what all
// claims have on one node. It never changes: a change of the holds makes a new one, so that readers need no lock.
//
// # Contract
//
// Who uses what is never recorded. What an inclusive claim holds on a node includes its pods there, so that what is
// unused of it is the amount less what these ask for, on the node that the reader looks at: the NodeInfo of a
// scheduling cycle, or the ledger's node between cycles. A pod that is a victim in a what-if search leaves its part
// unused there, and only there. All that any other claim holds is unused; a pod that needs a part of it lowers the
// amount with [Holds.Take]. A pod fits on a node (see [NodeHolds.Fit]) iff
//
//	request + unused amounts that it may not use <= allocatable - requested
//
// in each resource that both sides name, and in the number of pods. Resources without
// holds are not checked.
//
// Only the planner of package placement changes what claims have, with [Holds.Change]. It sees to it that there is
// room: a Holds does not know the nodes.
//
// A Holds may be used from several goroutines: one mutex guards all of it, and no method calls back. A [View] belongs
// to one goroutine at a time.
//
// # Non-goals
//
// The package does not choose nodes for slots: package placement does. It does not know which pods exist.
package holds
