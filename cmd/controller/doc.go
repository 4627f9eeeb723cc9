// Package controller is the program beside the scheduler: "kube-scheduler controller", in the scheduler's image.
//
// # Contract
//
// The program follows the cluster and runs the parts that its flags turn on, see package parts: --survival answers
// ZoneSurvivals, --buy asks an autoscaler for nodes, --rebalance plans and makes moves, --gang-budgets keeps budgets of
// gangs, and --deletion-costs keeps the spread of what is made smaller (packages zonewise.dev/cmd/controller/survival,
// .../buy, .../rebalance, .../gangbudgets and .../deletioncosts). Without a part it does not start. While it does not
// run, what it has written grows old, and nothing else happens.
//
// It is a manager of controller-runtime, with a controller for each part. One replica works: the holder of the lease. A
// process that loses the lease exits. All parts share one copy of the cluster in memory, which is read while the lease
// is held, and one budget of CPU, measured by the CPU time of the process itself.
//
// /livez says that the process serves. /readyz fails while the replica that works does not know all of the cluster, and
// says what it lacks; a replica that stands by is ready.
//
// # Non-goals
//
// The controller is not in the path of scheduling.
package controller
