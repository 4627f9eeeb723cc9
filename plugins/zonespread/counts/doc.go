// Package counts counts the pods that match a selector in each topology domain, and has the formulas of
// topologySpreadConstraints for these counts (skew.go).
//
// # Contract
//
// A [Query] names a namespace, a selector, a topology key and which nodes are eligible; the answer is a
// [Table]: for each value of the topology key, which is a domain, the number of pods in that namespace
// that match the selector and run on eligible nodes with that value. A terminating pod, one with a
// deletionTimestamp, does not count. A domain exists as long as one eligible node has it, with or
// without pods. A [View] is a Table with the additions and removals that a scheduling cycle tries.
//
// [Index] answers at a cost that does not grow with the number of pods. [Update] tells it of a snapshot:
// it sweeps the generations of all nodes, and compares the pods of those that changed. What it keeps:
//
//   - label sets: the pods of a namespace that have equal labels, with their number per node. A label set is
//     entered under each of its labels.
//   - counters: for each selector that was asked about, the matching pods per node. A counter is found
//     under one label that it requires, so that a new label set meets only the selectors that it may match,
//     and a new selector only the label sets that may match it.
//   - classes: for each topology key and [Eligibility], the domain of every eligible node.
//
// A query sums a counter over a class. Selectors, classes and topologies that are not used are evicted, see [Limits].
//
// A Table of an Index also knows the domains of nodes by their objects ([Table.Find]), so a check does not read a
// node's labels, which are rarely in the processor's caches. Only nodes that changed since the list was made are looked
// up by label.
//
// [Direct] walks every pod of every node, for snapshots that an Index must not see.
//
// A Table does not change once it is made and may be read by many goroutines; a View and an Index belong
// to one goroutine at a time.
//
// # Non-goals
//
// The package knows nothing about ZoneSpreadPolicies. It never reads a clock, logs, or calls an API.
package counts
