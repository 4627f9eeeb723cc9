// Package native guards the gangs of Kubernetes' own API: PodGroups of scheduling.k8s.io with a gang policy, and the pods that name them
// in spec.schedulingGroup.
//
// # Contract
//
// kube-scheduler and its plugin GangScheduling choose the nodes, in one cycle of the whole group. What is added:
//
//   - The first member's PreFilter asks what the gang is to do ([Gangs.Request]): it is refused if it provably does not fit, or confined to one
//     domain. That holds for this cycle alone; the look for pods to preempt is asked for anew.
//   - All members wait in Permit, the last one too, while the bind of one of each pod template is rehearsed; they are released together.
//   - Released members wait once more, in PreBind, until the quorum is prepared. Until then no member is bound, and if one that the quorum
//     needs is lost, all are sent back.
//   - From the moment that a member has lost its node, PreEnqueue keeps the group out of the queue until all members are back in
//     it and a backoff is over (see package gang). Without that, kube-scheduler would retry each at once and alone.
//   - A member whose bind has failed keeps its node by a nomination in the API.
//   - A group whose last cycle was in vain is activated when room becomes free. It backs off otherwise, as without a guard.
//   - A gang that lacks room for long is to keep nodes, which the caller does. It is told when the gang needs none ([Config]).
//   - The PodGroup gets conditions of this package's own types and events. kube-scheduler's conditions are left alone.
//
// Groups with a basic policy, and those in a composite group, pass through untouched. PreEnqueue looks only at memory.
//
// # Non-goals
//
// The package chooses no nodes, makes no proofs itself, and does not decide whether a group has enough members.
package native
