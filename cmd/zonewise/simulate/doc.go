// Package simulate foresees: what is displaced when zones or nodes are lost, where it goes, what waits, and which policies,
// budgets, gangs and reservations do not hold; and whether a workload that is not there yet would fit.
//
// It lets the scheduler act on a copy of the cluster (package sim), and compares the cluster before with the copy afterwards.
package simulate
