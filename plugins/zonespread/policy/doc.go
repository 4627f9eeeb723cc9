// Package policy decides what a ZoneSpreadPolicy means for a pod: which zones it may go to, which it should, and
// which zones are unavailable. All formulas of policies live here, as those of native constraints live in skew.
//
// # Contract
//
// Functions are pure: they look at their arguments only; whatever depends on the time takes now. Nothing here logs,
// watches or waits. A [Policy] is immutable and a [Table] is read-only after Judge, both safe for any
// number of goroutines; a [Machine] is not and needs its owner's lock. Verdicts on nodes allocate nothing.
//
// # What an adapter does with it
//
// When a policy is added or changed: [Compile] it. On errors write [Rejected] as its status and apply it to no pod. Keep
// one [Machine] per policy UID: [NewMachine] with the status of the object for a policy that is new to the process,
// Respec for one that changed. Take spec changes by generation, so that the adapter's own writes of the status do not
// reset anything. Call ObserveNodes at once, after the node informer has synced; before that, an empty node cache
// looks like the loss of every zone.
//
// Per pod, in PreFilter, for every policy of the pod's namespace with Selects(pod labels):
//
//  1. Count the live pods that match SelectorFor(pod labels) in the pod's namespace (not terminating), per value of
//     TopologyKey: on nodes that are eligible as far as HonorsAffinity and HonorsTaints say, and on all nodes. That
//     gives one [Domain] per zone of the cluster. Excluded is for zones with nodes of which none matches the pod's
//     node selector or required affinity, while HonorsAffinity.
//  2. Replicas(demand, pod labels): Demand lists the namespace's top-level workloads from informers.
//     Percentages and quorumSafe refer to it, so a change of spec.replicas must wake waiting pods: the
//     informer of Deployments may well trail the one of pods.
//  3. View(shape, now) of the machine; [Shape] is needed only when KnowsShapes.
//  4. Judge gives the [Table]. Keep the tables in the cycle state; Clone and Add serve AddPod and RemovePod, for
//     pods that match SelectorFor.
//
// Filter: Check(node labels) of every table, first refusal wins; MessageFor is the reason and Rule.Resolvable the code
// (Unschedulable or UnschedulableAndUnresolvable). Build the framework's status once per zone and pod, not per
// node.
//
// PreScore: Scores for the zones of the nodes that passed; a node's score is the sum over its policies, divided by
// their number, and 0 for a policy whose label the node lacks.
//
// PostFilter, ahead of DefaultPreemption: [Gather] the outcomes over the nodes that are eligible for the pod, with
// NotLookedAt for a node that has no status of its own and for refusals by ZoneSpread and PermitGate, and
// hand them to ObserveAttempt. Reserve, for the chosen zone: ObserveAttempt with TookPod.
//
// On node events: ObserveNodes with all zones. On pod counts: ObserveCounts, at any convenient pace.
//
// Keep one timer per machine on NextDeadline, renewed after every Observe that returned true. When it fires and the
// deadline Wakes, activate the waiting pods that the policy selects: time alone requeues nothing. When an Observe
// or a deadline returned news, let the leader write Status; Export alone is what a restart needs.
//
// A policy that is created, changed or deleted wakes the waiting pods of its namespace that it selects or
// selected.
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
