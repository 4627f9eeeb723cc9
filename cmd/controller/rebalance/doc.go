// Package rebalance is the part of the controller that plans the moves of ZoneRebalances and, where their mode is
// Evict, makes them.
//
// # Contract
//
// Nothing is planned until no zone and no policy has changed for spec.after, while the spec is invalid, or while not
// all of the cluster is known. What was planned before stays in the status meanwhile. A plan is made again (package
// zonewise.dev/rebalance) when the cluster has changed since. While not all is known, nothing is said of moves that are
// under way, either.
//
// Before moves begin they are tried on a copy of the cluster as it is then. Gangs that PermitGate reports to be bound
// in part have their bound members evicted, if their PodGroups ask for it.
//
// Package zonewise.dev/rebalance/act decides which pods are evicted and when. This package shows it the cluster, writes
// the status before the evictions and after them, and evicts through the Eviction API, which keeps
// PodDisruptionBudgets. All that is decided by is in the status. A status that cannot be written is followed by no
// eviction. Moves of one ZoneRebalance alone are under way.
//
// # Non-goals
//
// It deletes no pod, and says to no scheduler where a pod is to go.
package rebalance
