// Package gangbudgets is the part of the controller that keeps whole gangs from being taken apart by voluntary
// evictions.
//
// # Contract
//
// A PodGroup with the annotation zonewise.dev/disruption-budget: minMember gets a PodDisruptionBudget of its name, of
// which it is the owner, as soon as minMember of its members are bound: so many have to stay. It is kept while a member
// is bound, and it follows minMember. For a native PodGroup this is minCount.
//
// A budget selects by labels. The members of a PodGroup of scheduling.x-k8s.io have its label. Those of a native one
// have the label zonewise.dev/native-pod-group with its name, or that of their Job. There is no budget for a gang whose
// members do not. Other pods that have the label count as members do.
//
// Two budgets that select the same pod make every eviction of it fail. So there is none of ours for a gang of which
// another budget selects a member, and none where another budget has the name: of two PodGroups the first to have one
// keeps it. An event of the PodGroup says so.
//
// Nothing is remembered but what events have said: the budgets are the state.
package gangbudgets
