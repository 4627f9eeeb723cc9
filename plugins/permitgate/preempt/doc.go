// Package preempt makes room for a whole gang: it looks for pods of a lower priority without which the gang fits,
// evicts them, and waits until they are gone.
//
// # The search
//
// [Search.Run] finds victims as upstream's preemption of pod groups does (selectVictimsOnDomain in
// podgrouppreemption.go), on nodes of the whole cluster, or of some domains, of which the best answer wins:
//
//  1. The pods that may go are listed, on as many nodes as are enough. If these would not take the gang without them, no victims help.
//  2. Members are placed on one node after the other, those first that have room, then those where the fewest and least important pods may
//     go. A node is tried without all of these, and takes as many members as the profile's filters accept there. Until all
//     are placed, plugins reserve their devices and volumes, so that no two members count on the same one.
//  3. Victims are put back as long as the filters accept the members: those first whose eviction violates a PodDisruptionBudget, then the
//     most important.
//
// Which pods may go is tried in steps, until the gang fits: those whose budgets are not used up and that are as
// unimportant as the requests allow, then all whose budgets are not used up, and then the same without regard to
// budgets. Unlike upstream's, a search looks at a part of the nodes, works on copies of these, and takes pods off only
// when their node is tried.
//
// A bound gang keeps minMember members, or is evicted as a whole. Pods of DaemonSets stay, since they would come back.
// Terminating pods count as gone; the gang waits for their end. One that has had its time and does not leave counts as
// a pod that may not go. What a search looks at is limited by number, and by time only what it does for a better answer
// than it has, and what filters have refused many times.
//
// # The preemption
//
// [Preemptor.Begin] first asks the API server in a dry run whether it would delete all victims. If it refuses one, none
// is evicted. Otherwise all are evicted, several at a time. The preemption ends when the last victim has left, when one
// cannot be evicted, or after a time that grows with their number.
//
// # Locks
//
// The Preemptor has its own lock, and calls [Gangs] without it. Its methods may be called with the gangs' lock held,
// except for Begin. A Search is used in one scheduling cycle.
package preempt
