// Package simulate foresees: what is displaced when zones or nodes are lost, where it would go, what would wait, and
// which policies, budgets, gangs and reservations would not hold; and whether a workload that is not there yet
// would fit.
//
// It plays on a snapshot, with the formulas of the plugins (package world). What it assumes, besides what world says:
//
//   - controllers make every displaced pod anew, but for pods of DaemonSets, mirror pods, and pods without a
//     controller;
//   - pods are placed by priority, and workload by workload, not in the order of one scheduler's queue;
//   - grace periods are over: a zone without nodes is Down;
//   - pods that waited before wait on: they are counted apart, and not tried, but for those of gangs that lose members or
//     get more, which are planned with all that wait.
package simulate
