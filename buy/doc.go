// Package buy computes what an autoscaler is to be asked for, so that slots and the room for losses have nodes.
//
// To Cluster Autoscaler and Karpenter held room is free, and room that is missing is no pod. So an autoscaler is asked,
// for each zone and size, for as many pods' room as is held and unused or missing: a request for the missing part alone
// would be placed into what is held. It is asked by CapacityBuffers (autoscaling.x-k8s.io), each with a PodTemplate of
// its name.
//
// # Contract
//
// [ReservationDemand] and [SurvivalDemand] derive what is wanted from an object and the cluster.
// [Demand.Plan] says what to ask for now, from that and from what is asked for: the buffers that exist are the only
// state. [Demand.PodTemplate] and [Demand.CapacityBuffer] are the objects, [Read] the inverse of the latter.
//
//   - What is asked for rises at once, and falls to the most that was wanted in the last [FallAfter].
//   - What owners use is not asked for, at once: what is asked for and used together is at most what was promised.
//   - It never exceeds spec.buy.max. Under that bound what is asked for already goes before what is newly wanted.
//   - Room of another size, or in a zone that is known now, takes the place of what is wanted no more.
//   - In a zone whose nodes are all unusable no more is asked for, and of an owner whose zones share what is wanted in
//     none: displaced pods and the request would both buy. What is used still lowers it.
//   - Owners that wait to be placed are about to use what is held: what their going has added is not bought again.
//
// The package is pure: it is told the time, and modifies nothing that it is given.
//
// # Non-goals
//
// The package asks; which nodes are bought is the autoscaler's decision.
package buy
