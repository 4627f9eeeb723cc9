// Package preempt makes room for a whole gang: it looks for pods of a lower priority without which the gang fits, evicts them, and
// waits until they are gone.
//
// # The search
//
// [Search.Run] first asks the proposal's relaxation whether the gang would fit if every pod that may be evicted were gone; what
// that refuses is refused for certain, and cheaply. Then each member takes the node where it costs the least: no
// PodDisruptionBudget violated, then the lowest priorities, then the fewest pods. The profile's filters accept it there, on a copy of
// the node without the victims and with the members before it. Where they refuse a node that has room, pods may close it by
// something else, such as host ports or anti-affinity: then all that may go are taken away, and put back one by one as long as the
// filters accept the member.
//
// A gang that is bound is never cut below its minMember, unless the whole of it goes. Pods of DaemonSets stay: they would come
// back. Pods that are leaving anyway are counted as gone, and waited for.
//
// # The preemption
//
// [Preemptor.Begin] asks the API server first whether it would let all victims go (a dry run), and evicts none when
// one of them is refused. Then all are evicted, several at a time. The preemption ends when the last of them has left, when one
// cannot be evicted, or after a time that grows with their number.
//
// # Locks
//
// The Preemptor has a lock of its own. It calls [Gangs] without it; its methods may be called with the gangs' lock held, except for
// Begin. A Search is used in one scheduling cycle.
package preempt
