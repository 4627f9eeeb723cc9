// Package deletioncosts is the part of the controller that keeps the spread when workloads are made smaller.
//
// # Contract
//
// A ReplicaSet that is made smaller deletes first the pods that are not ready, then those with the lowest cost by the
// annotation controller.kubernetes.io/pod-deletion-cost, 0 without it. For each ReplicaSet and ReplicationController
// whose pods a ZoneSpreadPolicy with scaleDownPolicy KeepSpread selects, the n ready pods of a zone have the costs of
// the ranks 0 to n-1, each once, see policy.Policy.DeletionCost. So the fullest zone shrinks first.
//
// Nothing is remembered: the annotations are the state, and the managed fields of a pod say whose they are. A pod keeps
// a rank below n, and the oldest of those without one gets the lowest that is free: one pod more or less is one write.
// A ReplicaSet that has a pod with a cost of another field manager has none of ours, since two orders mixed are none.
// Costs are written by server-side apply, without force and by UID, the lowest first, at most 100 in one look.
// Namespaces take turns, and what the API server refuses in one keeps no other waiting. What no policy asks for is
// taken away.
//
// The condition ScaleDownOrdered of a policy says whether that is done, and why not.
//
// # Non-goals
//
// The controllers of StatefulSets and Jobs look at no costs. Caps, and pods of other workloads that a policy counts as
// well, make no difference. The part deletes no pod.
package deletioncosts
