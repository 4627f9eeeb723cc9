// Package buy computes what an autoscaler is to be asked for, so that slots and the room for losses have nodes.
//
// To Cluster Autoscaler and Karpenter held room is free, and room that is missing is no pod. So an autoscaler is asked,
// for each zone and size, for as many pods' room as is held and unused or missing: a request for the missing part alone
// would be placed into what is held. It is asked by CapacityBuffers (autoscaling.x-k8s.io), each with a PodTemplate of
// its name.
//
// A ZoneSpreadPolicy is nothing to them: pods that only it keeps out of a zone seem to fit there. So an autoscaler is
// asked for room for the pods that wait because of a policy, in the zones to which the policy lets them go.
//
// # Contract
//
// [ReservationDemand], [SurvivalDemand] and [PolicyDemand] derive what is wanted from an object and the cluster.
// [Demand.Plan] says what to ask for now, from that and from what is asked for: the buffers that exist are the only
// state. [Demand.PodTemplate] and [Demand.CapacityBuffer] are the objects, [Read] the inverse of the latter.
//
//   - What is asked for rises at once, and falls to the most that was wanted in the last [FallAfter].
//   - What pods have been asked for that run now is not asked for any more, at once: they use the room.
//   - It never exceeds spec.buy.max. Under that bound what is asked for already goes before what is newly wanted.
//   - Room of another size, or in a zone that is known now, takes the place of what is wanted no more.
//   - A zone whose nodes are all unusable stays as it is. So does all of an owner whose zones share what is wanted.
//   - Owners that wait to be placed are about to use what is held: what their going has added is not bought again.
//
// The package is pure: it is told the time, and modifies nothing that it is given.
//
// # Non-goals
//
// The package asks; which nodes are bought is the autoscaler's decision.
package buy
