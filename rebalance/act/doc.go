// Package act decides how a plan of package rebalance is carried out: which pods are evicted next, whether the cluster
// follows the plan, and when it is stopped.
//
// # Contract
//
// [Next] takes the spec and the status of a ZoneRebalance and what is seen of the cluster, brings the status up to
// date, and returns what to do. The caller writes the status first, against the version that it has read, and only then
// evicts the pods that are named, by their UIDs. What came of an eviction goes into the status by [Record]. All that is
// decided by is in the status, so another process goes on where one has ended:
//
//   - A pod is in the state Evicting before it is evicted. Whoever finds that state evicts the same pod, by its UID,
//     or sees that it is gone.
//   - No more than maxAtOnce moves are under way, and those evicted within the last hour, by the status, are no more
//     than maxPerHour. A move counts from the time at which it is known to be over, not from the eviction, which is
//     earlier.
//   - Moves begin only if the caller says that a copy of the cluster as it is now follows them.
//   - The bound members of a gang that stays bound in part are evicted together, if its PodGroup asks for it, and only
//     when the hour has room for all of them. Nothing else is under way then. That ends when the gang is whole or waits
//     as a whole.
//   - A move is over when a pod in place of the evicted one is ready in a zone of the plan and fewer pods of the
//     workload are too many. Otherwise the plan is stopped, and what is left of it is dropped.
//
// # Non-goals
//
// The package plans nothing, does no I/O and has no clock.
package act
