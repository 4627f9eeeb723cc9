// Package holds records what is held on nodes, and for which pods.
//
// It is pure: it knows neither informers nor clocks nor the scheduling framework. A [Claim] says who holds capacity
// and on what terms. What a claim has on one node is a [Hold], which is an amount and nothing else. Most claims have
// slots: every amount is then a number of slots of one size. A claim's [Use] says when its pods use what is held:
// UseLast (Headroom), UseFirst (Guarantee) or UseOnly (ownerPolicy Required). [NodeHolds] is what all claims have on
// one node. It never changes: a change of the holds makes a new one, so that readers need no lock.
//
// # Contract
//
// Who uses what is never recorded. What an inclusive claim (any but one of Headroom's slots) holds on a node
// includes its pods there, so that what is unused of it is the amount less what these ask for, on the node that the
// reader looks at: the NodeInfo of a scheduling cycle, or between cycles the node of package ledger, which follows
// the informers. A pod that is a victim in a what-if search leaves its part unused there, and only there. All that
// any other claim holds is unused; a pod that needs a part of it lowers the amount with [Holds.Take] at Reserve. A
// pod that holds may keep off fits on a node (see [NodeHolds.Fit]) if
//
//	request + unused amounts that it may not use <= allocatable - requested
//
// in each resource that it requests and that is held, and in the number of pods. With UseOnly its request must also
// lie in what is unused of its own claim's.
//
// Besides Take, only the planner of package placement changes what claims have, with [Holds.Change] and
// [Holds.Release]. It sees to it that there is room: a Holds does not know the nodes.
//
// A Holds may be used from several goroutines: one mutex guards all of it, and no method calls back. [View.Update]
// needs the view alone; between updates any number of goroutines may read it.
//
// # Non-goals
//
// The package does not choose nodes for slots: package placement does. It does not know which pods exist.
package holds
