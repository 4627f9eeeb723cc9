// Package serve keeps what ZoneSpreadPolicies need besides the counts of a scheduling cycle: it watches policies, pods, nodes
// and workloads, wakes the pods that a policy refused, and writes the policies' status. What a policy means is decided by
// package policy; pods are counted for a cycle by package counts.
//
// # Contract
//
// There is one [Policies] per scheduler; its profiles share it. It is made by [New] and started by the first
// Join. A missing CustomResourceDefinition, a policy that cannot be applied and a missing permission turn off
// what depends on them and nothing else: no method stops or fails a scheduling cycle, and a pod of a namespace
// without policies costs one map lookup.
//
//	PreFilter        AwaitStart, For, Ask
//	PreScore         Took, for the zones of the nodes that passed
//	PostFilter       Attempted, ahead of DefaultPreemption
//	Reserve          Took and Placed, but in the cycles of pod groups, where Reserve is a rehearsal
//	SignPod, hints   For, and Helps for the pods that wait
//
// Nothing that a cycle asks costs more with the number of pods, policies or workloads: a policy is found by a label of the
// pod, and its desired replicas by its own workload.
//
// # Waking
//
// Changes of pods and nodes wake waiting pods by the framework's hints, which ask Helps. What has no event there (a pod that
// starts to terminate, desired replicas, deadlines, policies) is woken from here, and only for pods that a policy refused
// in a way that the change may help. Such a pod is never woken earlier than the framework's own backoff would let it be
// tried, with kube-scheduler's defaults.
//
// # Concurrency
//
// All methods may be called from any goroutine, For and Helps also under the lock of the scheduling queue. One lock guards
// everything; neither the scheduling queue nor the API server is called with it held: a worker does the one, and on
// the leader a status writer the other.
//
// # Non-goals
//
// It evicts nothing, and decides nothing about a zone that package policy does not.
package serve
