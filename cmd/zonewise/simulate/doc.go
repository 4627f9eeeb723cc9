// Package simulate predicts what happens when zones or nodes are lost: which pods are displaced, where they go, which
// wait, and which policies, budgets, gangs and reservations break. It also says whether a new workload would fit.
//
// The scheduler acts on a copy of the cluster (package sim), and the cluster before is compared with the copy
// afterwards.
package simulate
