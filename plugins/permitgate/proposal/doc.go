// Package proposal says of a gang's members, before any of them is tried, that they cannot all be placed, or on which
// nodes to try them.
//
// It is pure: it looks at a [Cluster] and at the members' pods, and knows neither framework nor clock. The same input
// gives the same answer.
//
// # Contract
//
//   - Refused is a proof. It rests on a relaxation: an upper bound of how many members each node can take by what
//     the filters of the profile refuse for certain ([Filters]): resources and the number of pods, node selectors and required
//     node affinity, taints, cordoned nodes, host ports and anti-affinity among the members themselves over hosts. Whatever it
//     does not know, such as devices, volumes, other pods' affinity or plugins of other origin, counts as possible.
//   - Proposed names a node for each member that it can, at least for the quorum. These are hints: the members
//     fit there together by their resources, and the filters decide about all the rest.
//   - Unproven is neither: the members differ, and no assignment was found, which is no proof that there is none (bin
//     packing is NP-hard).
//
// # How hints are found
//
// Members that ask the same of a node are one [Class], so that the cost is that of the classes and not of the members. The
// classes are placed one after the other, the biggest first, on the first nodes that have room, from a place on the list
// that the caller moves on, zone by zone and node by node in turns: that suits most spread rules, and per-node limits that are not
// known here. When that does not place the quorum, all nodes are looked at and filled up in turn (best fit decreasing, in
// several orders).
//
// With a [Topology] all members are to be in one domain of a label: the domain is chosen that is the
// tightest of those that can hold them and that have not been tried before.
//
// # Non-goals
//
// A proposal holds nothing, moves no pod, and does not weigh scores. It does not count pods that spread constraints select.
package proposal
