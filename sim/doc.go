// Package sim runs the real scheduler, with the pack, on a copy of a cluster: the same registry of plugins, the user's
// KubeSchedulerConfiguration, the scheduler's own queue, cycles, Reserve, Permit and preemption. There is no API
// server, and nothing reaches the cluster that was copied.
//
// # Contract
//
// A [Sim] is made from a cluster's objects by [New]. Evaluate returns the plugins' own verdict on every node for one
// pod and changes nothing. Add, AddNodes, Lose, Put and Remove change the copy; Run then schedules the waiting pods
// until waiting longer would change nothing. The package itself does not judge: every reason in an answer is a
// plugin's.
//
// The copy has its own time. It stands still while the scheduler computes, and then moves to the next moment at which
// something is due, so that grace periods pass at once.
//
// The same objects, options and seed give the same result. For that the package must know when the copy is at rest: it
// counts requests and binding goroutines, asks the plugins whether their workers are idle (Idle), and gives other
// goroutines a bounded time to finish. On a machine that is busy with other work that time may be too short.
//
// # What it leans on
//
// Three things are not part of any contract: the fields of the framework's waitingPod, by which the package knows that
// a pod in Permit has been decided; the Go runtime's metrics of goroutines, by which it knows that all rest; and the
// function in which the scheduler registers its handlers. upstream_test.go tries them, and says what to change when an
// upgrade breaks them.
//
// # Where it differs from a cluster
//
//   - The scheduler's client is served from memory. Binds, patches and evictions change the copy, and field selectors and
//     watches work as the scheduler uses them.
//   - Controllers are simulated as far as the scheduler needs them: those of Kubernetes, and those that Options.Controllers names, replace
//     lost and evicted pods, a Job within its limits. One whose object the copy does not have is thought to do its work.
//   - New claims get the default class, and their volumes at once: of a class that does not wait for a pod where a CSI provisioner would choose,
//     within what CSIStorageCapacity objects say is left. A claim of the cluster that has no volume gets none: the copy does not know why.
//   - Pods that terminate end when their grace periods do; one that ought to have ended before stays.
//   - Finished pods are left out. Pods are not batched.
//   - With the gate TopologyAwareWorkloadScheduling all placements of a pod group are tried, where the scheduler may try
//     a share of them. Of those with the same score kube-scheduler takes one at random, in a copy too.
//   - The configuration's extenders are not called, unless Options.CallExtenders says so; then they see the copy's pods.
//   - The pods of schedulers that the configuration does not have compete for room: they are placed as a plain kube-scheduler would.
//
// # Concurrency
//
// The methods of one Sim are called from one goroutine at a time. Several Sims may run at once and share objects.
//
// # Non-goals
//
// The package does not model kubelets, the speed of controllers or the latency of the API server: it says where pods
// go, not when.
package sim
