// Package serve keeps what ZoneSpreadPolicies need besides the counts of a scheduling cycle: it watches policies, pods,
// nodes and workloads, wakes the pods that a policy refused, and writes the policies' status. Package policy decides,
// and package counts counts the pods for a cycle.
//
// # Contract
//
// There is one [Policies] per scheduler; its profiles share it. It is made by [New] and started by the first
// Join. A missing CustomResourceDefinition, an invalid policy or a missing permission turns off only what
// depends on it: no method stops or fails a scheduling cycle. A pod of a namespace without policies costs one map
// lookup.
//
//	PreFilter        AwaitStart, For, Inputs; in the cycles of pod groups Attempted, if a policy refuses the pod a zone
//	PostFilter       Attempted, ahead of DefaultPreemption
//	PostBind         Bound
//	SignPod, hints   For
//
// The cost per cycle does not depend on the number of pods, policies or workloads: policies are found by a label of the
// pod, and the desired replicas by its own workload.
//
// # Waking
//
// The framework's hints wake pods after changes of other pods and of nodes. What is no event of the framework is
// handled here: a pod that starts to terminate, desired replicas, grace periods, policies, controllers that arrive.
// Each waiting pod has its own wake time: when the first of the zones that it waits for closes, or becomes full for its
// workload. It wakes only pods that a policy refused, and not before their backoff ends, as kube-scheduler has
// published it.
//
// # Several schedulers
//
// Each decides by the facts that it sees. The status names the Lease of its writer, see package lease.
//
// # Concurrency
//
// All methods may be called from any goroutine, For also under the lock of the scheduling queue. One lock guards
// everything. The scheduling queue and the API server are not called with it held: a worker calls the queue, and the
// leader's status writer the API server. Statuses are counted and computed without it, from copies.
//
// # Non-goals
//
// The package evicts no pods, and makes no decisions about zones; package policy does.
package serve
