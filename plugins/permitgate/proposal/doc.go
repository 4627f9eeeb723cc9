// Package proposal decides, before any member of a gang is tried, whether the members provably cannot all be placed,
// and otherwise on which nodes to try them.
//
// It is pure: it looks at a [Cluster] and at the members' pods, and knows neither framework nor clock. The same input
// gives the same answer.
//
// # Contract
//
//   - Refused is a proof. It is a relaxation: an upper bound of the members that each node can take, from what the
//     filters of Kubernetes certainly refuse: resources and the number of pods, node selectors and required
//     node affinity, taints, cordoned nodes, host ports and anti-affinity among the members themselves over hosts. What it
//     does not know (devices, volumes, other pods' affinity, other plugins) counts as possible.
//   - Proposed names nodes for at least a quorum of members. These are hints: by their resources the members fit
//     there together, and the filters decide the rest.
//   - Unproven is neither: the members differ, and no assignment was found although one may exist (bin packing is
//     NP-hard).
//
// # How hints are found
//
// Members with the same requirements are one [Class], so the cost depends on the number of classes, not of members. The
// classes are placed one after the other, the biggest first, on the first nodes that have room. The search starts at a
// different node each time (the caller says where), and takes nodes in turn, and those of different zones, which suits
// most spread rules and unknown limits per node. If that does not place the quorum, a second search fills all nodes one
// by one (best fit decreasing, in several orders).
//
// With a [Topology] all members must be in one domain of a label: the tightest one that can hold them and has not been
// tried before.
//
// # Non-goals
//
// A proposal holds nothing, moves no pod, and ignores scores. It does not count pods for spread constraints.
package proposal
