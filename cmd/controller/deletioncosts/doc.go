// Package deletioncosts is the part of the controller that keeps the spread when workloads are made smaller.
//
// # Contract
//
// The controller of a ReplicaSet that is made smaller ranks its pods: those without a node first, then pending ones,
// then those that are not ready, then by the annotation controller.kubernetes.io/pod-deletion-cost, the lowest first,
// and only then by what shares a node and by age. It knows no zones. For each ReplicaSet and ReplicationController
// whose pods a ZoneSpreadPolicy with scaleDownPolicy KeepSpread selects, this part gives the ready pods the costs by
// which the fullest zone shrinks first, see policy.Table.DeletionCosts. 0 is what a pod without the annotation has:
// such a cost is not written.
//
// Nothing is remembered: the costs are the state, and the managed fields of a pod say whose they are. A pod keeps a
// cost that its zone still has use for, so that nothing is written while nothing changes, and one pod more or less is
// one write. A ReplicaSet that has a pod with a cost of another field manager gets none, and loses those it has of
// ours, since two orders mixed are none. Costs are written by server-side apply, without force and by UID. What no
// policy asks for is taken away. While a Deployment replaces its pods, nothing is written for it.
//
// No more is written than a number of costs a minute, the lowest first, whether a pod has such a cost or is to have it:
// who leaves next is put right before all else. What is refused keeps no other ReplicaSet waiting.
//
// The condition ScaleDownOrdered of a policy says whether that is done, and why not.
//
// # Non-goals
//
// The controllers of StatefulSets and Jobs do not look at costs. The part deletes no pod.
package deletioncosts
