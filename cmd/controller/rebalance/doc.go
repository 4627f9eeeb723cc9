// Package rebalance is the part of the controller that moves pods of ZoneRebalances whose mode is Evict, and shows for
// the others what would be moved.
//
// # Contract
//
// One batch, then look again. A look reads the cluster, sees what has become of the moves that are under way, and if
// nothing is against it searches the next batch on a copy of that very reading (package zonewise.dev/rebalance);
// package zonewise.dev/rebalance/act decides whether moves may begin. The way of a batch:
//
//	zones settled, nothing under way, not stopped, room in the hour (act.MayBegin)
//	  -> searched on a copy, accepted as a whole (rebalance.First)
//	  -> the reading is not older than 5 seconds and what the batch itself took
//	  -> the controller may evict there (SelfSubjectAccessReview)
//	  -> written into the status, against the version that was read
//	  -> the cluster is read once more: zones, pods and siblings are as they were (rebalance.Standing.WhyNotMoved)
//	  -> evicted through the Eviction API, by UID and resourceVersion
//
// There is no other request to the Eviction API. What is refused on the way is over, and searched again. A status that
// cannot be written is followed by no eviction. While not all of the cluster is known, nothing is concluded.
//
// Moves of one ZoneRebalance alone are under way, and one search is made in a look: that of the one whose last search
// is oldest. A whole plan, for mode Plan, is searched in steps between which the other parts have their turns.
//
// # Non-goals
//
// It deletes no pod, and says to no scheduler where a pod is to go.
package rebalance
