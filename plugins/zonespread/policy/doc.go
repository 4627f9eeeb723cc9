// Package policy applies a ZoneSpreadPolicy to a pod: which zones the pod may use, which it should prefer, and which
// zones are closed or full. All formulas of policies are here, and those of native constraints in package counts.
//
// # Contract
//
// Functions are pure: they depend only on their arguments, with the time as the argument now. They do not log,
// watch or wait. A [Policy] is immutable and a [Table] is read-only after Evaluate, both safe for any number of
// goroutines; [Zones] are not and need their owner's lock. Checks of nodes allocate nothing.
//
// # What an adapter does with it
//
// [Compile] a policy when it is added or changed. On errors write [Rejected] as its status and apply it to no pod. Keep
// one [Zones] per policy UID: [NewZones] with the facts in the status of an object that is new to the process, Respec
// for one whose generation changed. Call ObserveNodes first, once the informer of nodes has synced: before that, an
// empty cache looks like the loss of every zone.
//
// For each pod and each policy that selects it, PreFilter counts the pods that match SelectorFor on eligible nodes, and
// those that HeldFor names, which makes one [Domain] for each zone; Zones.For and Replicas give the rest of the
// [Input], and Evaluate the [Table]. Filter calls Check; scores of several policies are averaged. RecordRefusal records
// an attempt that failed while the policy held the pod back, and RecordBind a success. A pod that waits is woken at
// NextWake, because the framework requeues no pod after a time.
//
// # Rollouts
//
// No cap stops a rollout, a surge or a scale-up for ever, as long as the caps admit all replicas (condition Infeasible
// is False) and nodes have room:
//
//   - Caps and skew compare a workload with itself, and count the pods of the incoming pod's own revision. The new
//     ReplicaSet of a Deployment never wants more than spec.replicas pods, whatever maxSurge is, so the caps admit all of
//     them while old pods still stand.
//   - R is what the owner asks for, not what exists. It is at least the size of every revision that grows, and grows
//     before pods do. With Matching it counts the waiting pods and all revisions, for the same reason.
//   - A zone at its cap leaves the minimum (see Evaluate), so that the emptiest zone that may still grow is open.
//   - A StatefulSet's pods lack pod-template-hash and count over all revisions; the controller deletes a pod
//     before it makes its successor, and a terminating pod does not count, so that the place is free again.
//
// During a rollout a zone may for a time hold pods of two revisions, each within the cap. At its end one
// revision is left, within the cap.
//
// # Non-goals
//
// The package moves and evicts no pods, reads no nodes, and does not count pods: package counts does.
package policy
