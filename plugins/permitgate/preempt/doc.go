// Package preempt makes room for a whole gang: it looks for pods of a lower priority without which the gang fits, evicts them, and
// waits until they are gone.
//
// # The search
//
// [Search.Run] first asks the proposal's relaxation whether the gang would fit without all pods that may be evicted; that is
// cheap, and a refusal is final. Then each member gets the cheapest node: no PodDisruptionBudget violated, then the lowest
// priorities, then the fewest pods. The profile's filters must accept it there, on a copy of the node without the victims and
// with the members before it. If they refuse a node that has room, pods may close it by host ports or anti-affinity: then all
// pods that may be evicted are removed from the copy, and put back one by one as long as the filters accept the member.
//
// A bound gang keeps minMember members, or is evicted as a whole. Pods of DaemonSets stay, since they would come back.
// Terminating pods count as gone, and are waited for.
//
// # The preemption
//
// [Preemptor.Begin] first asks the API server in a dry run whether it would delete all victims, and evicts none if it refuses
// one. Then all are evicted, several at a time. The preemption ends when the last of them has left, when one cannot be
// evicted, or after a time that grows with their number.
//
// # Locks
//
// The Preemptor has its own lock, and calls [Gangs] without it. Its methods may be called with the gangs' lock held, except
// for Begin. A Search is used in one scheduling cycle.
package preempt
