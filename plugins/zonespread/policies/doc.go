// Package policies serves ZoneSpreadPolicies to the ZoneSpread plugin: it watches them, knows what they have to know of
// pods, owners and nodes, wakes pods, and writes their status. What a policy means is decided by package policy.
//
// # Contract
//
// There is one [Policies] per scheduler; its profiles share it. It is made by [New] and started by the first
// Join. A missing CustomResourceDefinition, a policy that can not be applied and a missing permission turn off
// what depends on them and nothing else: no method stops or fails a scheduling cycle, and a pod of a namespace
// without policies costs one map lookup.
//
// The methods for the extension points take what the framework hands to the plugin:
//
//	PreFilter          AwaitStart once per process, then Judge; keep the Verdicts in the cycle state
//	AddPod, RemovePod  Verdicts.Add on the state's Clone
//	Filter             Verdicts.Check
//	Score              Verdicts.Scores, for the nodes that passed
//	PostFilter         Attempt, ahead of DefaultPreemption
//	Reserve            Took, but in the cycles of pod groups, where Reserve is a rehearsal
//	SignPod, hints     Selects, CountsFor
//
// Counts come from the snapshot of the cycle, by a [Counter]; what informers know of pods serves the desired
// replicas, waiting pods and the status only.
//
// # Concurrency
//
// All methods may be called from any goroutine, those that hints and SignPod need also under the lock of the scheduling
// queue. Nothing is activated and no API server is called with a lock held: a worker does
// the one, and on the leader a second worker the other.
//
// # Non-goals
//
// It evicts nothing. It does not keep counts up to date between cycles: package counts does.
package policies
