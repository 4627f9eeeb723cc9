// Package act decides about the moves of a ZoneRebalance: what has become of those that have begun, whether others may
// begin, and how long a workload rests after one.
//
// # Contract
//
// All that is decided by is in the status, so another process goes on where one has ended. The caller calls [Follow]
// with what it has read of the cluster, then [MayBegin]. Where moves may begin, and a copy of the cluster accepts some,
// it enters them by [Begin], writes the status against the version that it has read, and only then evicts the pods,
// within [AskWithin] and by their UIDs. What the API server has answered goes into the status by [Record].
//
//		                 ,-> NotEvicted | BudgetExhausted | Refused
//		Begin -> Evicting --> Evicted --> Moved | NotNeeded | NotBound | NotReady | NotBetter
//		                                    `-> Undone, within half a day
//
//	  - A move is not carried through time: of a pod that was not evicted, whatever the reason, the move is over, and the
//	    next search may find it again.
//	  - A move counts for an hour among those that maxPerHour allows, unless it is known that its pod was not evicted.
//	  - Failures belong to workloads: Refused, NotBound, NotReady, NotBetter, Undone. The workload rests for the cooldown,
//	    twice as long after each further failure, up to a day, until a move has lasted for half a day, or for two days none
//	    was made.
//	  - When moves of three different workloads have failed, and none succeeded in between, the copy is wrong about
//	    something, and nothing begins for the cooldown: twice as long if the next one fails, too. A change of the spec ends
//	    that.
//	  - What the controller of the pod wanted anyway ends a move in peace.
//
// # Non-goals
//
// The package searches no moves, does no I/O and has no clock.
package act
