// Package plan finds a node for every member of a gang at once, or says why there is none.
//
// It is pure: it looks at a [Cluster] and at the members' pods, and knows neither framework nor clock. The
// same input gives the same plan, in whatever order nodes and members are listed.
//
// # What a plan respects
//
//   - resources: the members' requests (k8s.io/component-helpers/resource) and the number of pods, of
//     which the Cluster says what is free;
//   - nodeSelector and required node affinity, taints, cordoned nodes;
//   - topologySpreadConstraints: those that DoNotSchedule are kept (KEP-895, KEP-3022, KEP-3094,
//     KEP-3243), the pods that the plan itself places included; the others are preferred;
//   - required anti-affinity and affinity (inter-pod) among the members themselves, and host ports;
//   - further rules that count pods in zones, through [Rules];
//   - what the caller excludes for a member, through [Member.Excluded].
//
// Anything else, such as volumes, devices and the anti-affinity of other pods, is left to the scheduler's
// filters, which verify each node: the caller excludes what they refuse and plans again.
//
// # How it is found
//
// Members with equal needs are one class, so that the cost is that of the classes and not of the members.
// Classes are placed one after the other, the biggest first, each member on the allowed node with the least
// to spare (best fit decreasing), or where the fewest pods are that it is to be spread from. When that does
// not place the quorum, other orders are tried, and, for members that must be together in one
// topology domain, other domains. This is a heuristic: bin packing is NP-hard, and of gangs whose
// members differ a plan may be missed. For members with equal needs and no constraints but resources it
// finds a plan whenever there is one.
//
// # Who has to go
//
// [Preempt] finds a plan for which pods of the cluster have to go, and names them; it removes nobody. It names nobody
// unless [Make] finds a plan in the cluster without them. Who may go, and which of these stand or fall together, is
// the caller's to say. Members are placed one after the other where the next one costs the others least: fewest
// disruptions against a PodDisruptionBudget, then the lowest priorities, then the fewest pods, each divided by the
// members that find room in return. Then victims are spared, the most important first, without whom there is a plan
// on the same nodes.
//
// When room alone does not do, it asks which pods close nodes otherwise ([Preemption.Openings]), and takes these nodes as open
// at the price of these pods.
//
// # Non-goals
//
// A plan moves nobody. It does not weigh preferences other than soft spread constraints.
package plan
