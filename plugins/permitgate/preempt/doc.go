// Package preempt makes room for a whole gang: it looks for pods of a lower priority without which the gang fits, evicts them, and
// waits until they are gone.
//
// # The search
//
// [Search.Run] first asks the proposal's relaxation whether the gang would fit without all pods that may be evicted; that is
// cheap, and a refusal is final. Then each member gets the cheapest node: no PodDisruptionBudget violated, then the lowest
// priorities, then the fewest pods. The profile's filters must accept the member there, on a copy of the node without the victims
// and with the earlier members. If they refuse a node that has room, host ports or anti-affinity of pods may be the reason. Then
// all pods that may be evicted are removed from the copy, and put back one by one as long as the filters accept the member.
//
// A bound gang keeps minMember members, or is evicted as a whole. Pods of DaemonSets stay, since they would come back.
// Terminating pods count as gone; the gang waits for their end.
//
// # The preemption
//
// [Preemptor.Begin] first asks the API server in a dry run whether it would delete all victims. If it refuses one, none is
// evicted. Otherwise all are evicted, several at a time. The preemption ends when the last victim has left, when one cannot be
// evicted, or after a time that grows with their number.
//
// # Locks
//
// The Preemptor has its own lock, and calls [Gangs] without it. Its methods may be called with the gangs' lock held, except
// for Begin. A Search is used in one scheduling cycle.
package preempt
