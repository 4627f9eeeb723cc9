// Package preempt makes room for a whole gang: it looks for pods of a lower priority without which the gang fits, evicts them, and
// waits until they are gone.
//
// # The search
//
// [Search.Run] finds victims as upstream's preemption of pod groups does (podgrouppreemption.go), for the whole cluster or for some domains,
// of which the cheapest wins:
//
//  1. The pods that may go are listed, on as many nodes as are enough. If these would not take the gang without them, no victims help.
//  2. Each member is placed on the node that is cheapest by the requests alone: no PodDisruptionBudget violated, then the lowest
//     priorities, then the fewest pods. The profile's filters must accept it there on a copy of the node without these pods, and with the
//     earlier members. If they do not, host ports or anti-affinity of other pods may be the reason, so all that may go are taken off.
//  3. Victims are put back as long as the filters accept the members: those first whose eviction violates a budget, then the most important.
//  4. If the filters have refused a node in between, it is tried once more with pods below the highest priority among the victims.
//
// A bound gang keeps minMember members, or is evicted as a whole. Pods of DaemonSets stay, since they would come back.
// Terminating pods count as gone; the gang waits for their end. What a search looks at is limited by number, and by time only what it does
// for a better answer than it has, and what filters have refused many times.
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
