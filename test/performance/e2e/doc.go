// Command e2e measures whole schedulers with upstream's scheduler_perf and prints how ours compares.
//
// "make bench-e2e" runs it. Each measurement is a process of its own: an etcd, an API server and a scheduler
// in one process, on a cluster of nodes that exist as objects only. The variants are measured in turns, so
// that a machine which is busy with something else for a while is equally unfair to all. Results are
// added to a file, and the tables are over all results in it, so that a long series can be run in parts.
//
// The cases are in cases.yaml, in scheduler_perf's own format. The variants differ in nothing but the
// scheduler's configuration.
//
// # Turns
//
// The speed of a shared machine changes within minutes, by more than the differences to be measured. With -turns the processes of all
// series of a case run at once, and take turns of some seconds: one creates a thousand pods and waits until they are bound,
// while the others are idle. A ratio is then the median of the ratios of single turns. See turns.go.
//
// # Client limits
//
// scheduler_perf gives the scheduler, and the clients that create nodes and pods, a QPS and a burst of 5,000:
// about ten times what two cores can use. The API server has its defaults.
//
// # Non-goals
//
// It asserts nothing: a shared machine is no judge. It prints "below" where a goal is missed.
package main
