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
//	PreScore         RecordFit, for the zones of the nodes that passed
//	PostFilter       Attempted, ahead of DefaultPreemption
//	Reserve          RecordFit and Placed, except in the cycles of pod groups, where Reserve is a rehearsal
//	SignPod, hints   For
//
// The cost per cycle does not depend on the number of pods, policies or workloads: policies are found by a label of the
// pod, and the desired replicas by its own workload.
//
// # Waking
//
// The framework's hints wake pods after changes of other pods and of nodes. What is no event of the framework is
// handled here: a pod that starts to terminate, desired replicas, deadlines, policies, controllers that arrive. It
// wakes only pods that a policy refused, and not before their backoff would end with kube-scheduler's defaults.
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
