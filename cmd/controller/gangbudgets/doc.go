// Package gangbudgets is the part of the controller that keeps whole gangs from being taken apart by voluntary evictions.
//
// # Contract
//
// A PodGroup of scheduling.x-k8s.io with the annotation zonewise.dev/disruption-budget: minMember gets a PodDisruptionBudget of its name, of which it is
// the owner, as soon as minMember of its members are bound: so many have to stay. It is kept while a member is bound, and it follows minMember.
//
// Two budgets that select the same pod make every eviction of it fail. So there is none of ours for a gang of which another budget selects a member, and
// none where another budget has the name. An event of the PodGroup says so.
//
// Nothing is remembered but what events have said: the budgets are the state.
//
// # Non-goals
//
// Native PodGroups have no budget: their members have no label that a budget could select by.
package gangbudgets
