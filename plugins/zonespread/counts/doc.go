// Package counts tells how many pods that match a selector each topology domain holds, and has the formulas of
// topologySpreadConstraints that judge such numbers (skew.go).
//
// # Contract
//
// A [Query] names a namespace, a selector, a topology key and which nodes are eligible; the answer is a
// [Table]: for each value of the topology key, which is a domain, the number of pods in that namespace
// that match the selector and run on eligible nodes with that value. A terminating pod, one with a
// deletionTimestamp, does not count. A domain exists as long as one eligible node has it, with or
// without pods. A [View] lays the additions and removals that a scheduling cycle tries out over a Table.
//
// [Index] answers at a cost that does not grow with the number of pods. [Update] tells it of a snapshot:
// it sweeps the generations of all nodes, and compares the pods of those that changed. What it keeps:
//
//   - shapes: the pods of a namespace that have equal labels, with their number per node. A shape is
//     listed under each of its labels.
//   - counters: for each selector that was asked about, the matching pods per node. A counter is found
//     under one label that it requires, so that a new shape meets only the selectors that it may match,
//     and a new selector only the shapes that may match it.
//   - classes: for each topology key and [Eligibility], the domain of every eligible node.
//
// A query sums a counter over a class. Selectors, classes and topologies that are not used make room for
// others, see [Limits].
//
// A Table of an Index also knows the domains of the nodes by their objects ([Table.Find]), so that judging a node
// does not touch its labels, which are memory that nothing else in a cycle has warmed. A node that changed since the
// list was made, which then is one of few, is looked up by its label.
//
// [Direct] answers by walking every pod of every node, for snapshots that an Index must not learn from.
//
// A Table does not change once it is made and may be read by many goroutines; a View and an Index belong
// to one goroutine at a time.
//
// # Non-goals
//
// The package does not know why a node is eligible, see [Eligibility], nor what ZoneSpreadPolicies make of the counts.
// It never reads a clock, logs, or calls an API.
package counts
