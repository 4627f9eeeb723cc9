// Package sim runs the real scheduler, with the pack, on a copy of a cluster: the same registry of plugins, the user's
// KubeSchedulerConfiguration, the scheduler's own queue, cycles, Reserve, Permit and preemption. There is no API server,
// and nothing reaches the cluster that was copied.
//
// # Contract
//
// A [Sim] is made from a cluster's objects by [New]. Ask returns the plugins' own verdict on every node for one pod and
// changes nothing. Add, AddNodes, Lose, Put, Remove and Sync change the copy; Run then schedules what waits until
// nothing more happens, however long one waits. Nothing here judges: what an answer says, a plugin has said.
//
// Time is the copy's own. It stands still while the scheduler computes and then moves to the next moment at which
// something was to happen, so that grace periods pass in no time.
//
// The same objects, options and seed give the same result. That rests on knowing when the copy is at rest: requests and
// binding goroutines are counted, the plugins' workers say so themselves (Idle), and other goroutines get a bounded time
// of the machine to come to rest.
//
// # Where it differs from a cluster
//
//   - The scheduler's client is served from memory. Binds, patches and evictions change the copy, and field selectors and
//     watches work as the scheduler uses them.
//   - Controllers are played as far as the scheduler needs them: lost and evicted pods are made again for their controllers,
//     and volumes are provisioned and bound at once.
//   - Pods that have finished are left out; pods are not batched; pods are tried one after another.
//   - Extenders are called if the configuration has them; they are told of the copy's pods.
//
// # Concurrency
//
// The methods of one Sim are called from one goroutine at a time. Several Sims may run at once and share objects.
//
// # Non-goals
//
// It is no model of kubelets, of controllers' speed or of the API server's latency: it says where pods go, not when.
package sim
