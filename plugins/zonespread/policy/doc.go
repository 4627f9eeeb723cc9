// Package policy decides what a ZoneSpreadPolicy means for a pod: which zones it may go to, which it should, and
// which zones are unavailable. All formulas of policies live here, as those of native constraints live in package counts.
//
// # Contract
//
// Functions are pure: they look at their arguments only; whatever depends on the time takes now. Nothing here logs,
// watches or waits. A [Policy] is immutable and a [Table] is read-only after Judge, both safe for any
// number of goroutines; [Zones] are not and need their owner's lock. Verdicts on nodes allocate nothing.
//
// # What an adapter does with it
//
// When a policy is added or changed: [Compile] it. On errors write [Rejected] as its status and apply it to no pod. Keep
// one [Zones] per policy UID: [NewZones] with the status of the object for a policy that is new to the process,
// Respec for one that changed. Take spec changes by generation, so that the adapter's own writes of the status do not
// reset anything. Call ObserveNodes at once, after the node informer has synced; before that, an empty node cache
// looks like the loss of every zone.
//
// Per pod, in PreFilter, for every policy of the pod's namespace with Selects(pod labels):
//
//  1. Count the live pods that match SelectorFor(pod labels) in the pod's namespace (not terminating), per value of
//     TopologyKey: on nodes that are eligible as far as HonorsAffinity and HonorsTaints say, and on all nodes; and those that
//     HeldFor(workload, pod labels) counts, on all nodes. That gives one [Domain] per zone of the cluster.
//  2. Replicas(workload, matching): R, of the pod's own top-level [Workload] or of all that the policy selects.
//  3. View(now, requests) of the zones; those of Lacking are looked at for room first.
//  4. Judge gives the [Table]. Keep the tables in the cycle state; Clone and Add serve AddPod and RemovePod.
//
// Filter: Check(node labels) of every table, first refusal wins; MessageFor is the reason and Rule.Resolvable the code
// (Unschedulable or UnschedulableAndUnresolvable). Build the framework's status once per zone and pod, not per
// node.
//
// PreScore: Scores for the zones of the nodes that passed, which also have room: Took. A node's score is the sum over its
// policies, divided by their number, and 0 for a policy whose label the node lacks.
//
// PostFilter, ahead of DefaultPreemption: Refused for each zone of which other plugins refused all nodes that are eligible
// for the pod. Reserve, for the chosen zone: Took.
//
// On node events: ObserveNodes with all zones. At any convenient pace: CaughtUp, while Recovering.
//
// Keep one timer per policy on NextDeadline, renewed after every call that returned news. When it fires and the deadline
// Wakes, activate the waiting pods that the policy refused for its skew: time alone requeues nothing. When a call returned
// news, let the leader write Status at once: Export is what a restart needs.
//
// A policy that is created, changed or deleted wakes the waiting pods that it refused.
//
// # Rollouts
//
// No cap stops a rollout, a surge or a scale-up for ever, as long as the caps admit all replicas (condition Infeasible
// is False) and nodes have room:
//
//   - Caps and skew count the pods of the incoming pod's own revision. A Deployment's new ReplicaSet never wants more
//     than spec.replicas pods, whatever maxSurge is, so the caps admit all of them while old pods still stand.
//   - R is what the owner wants, not what is there. It is at least the size of every revision that grows, and grows
//     itself before pods do. With Matching it counts the waiting pods and all revisions, for the same reason.
//   - A zone at its cap leaves the minimum (see Judge), so that the emptiest zone that may still grow is always open.
//   - A StatefulSet's pods lack pod-template-hash and count over all revisions; the controller deletes a pod
//     before it makes its successor, and a terminating pod does not count, so that the place is free again.
//
// During a rollout a zone may for a time hold pods of two revisions, each within the cap. At its end one
// revision is left, within the cap.
//
// # Non-goals
//
// It moves and evicts nothing, knows nothing of the capacity of nodes, and does not count pods: package counts does.
package policy
