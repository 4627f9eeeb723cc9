// Package zonespread is the ZoneSpread scheduler plugin: a drop-in for the in-tree PodTopologySpread
// whose cost does not grow with the number of pods in the cluster.
//
// # Contract
//
// For every pod's spec.topologySpreadConstraints, and for the default constraints of the arguments, the
// code that Filter returns for a node and the normalized score that a node gets equal those of
// PodTopologySpread in Kubernetes 1.37, with three exceptions that are defects there (see
// docs/zonespread.md): the minimum after a pod was added in another domain, the removal of a
// terminating victim, and the empty label selector. Enable either plugin in a profile, never both.
//
// The plugin is an adapter. What it decides about constraints lives in the pure package counts, which tells how many matching
// pods each topology domain holds and turns those numbers into verdicts and scores.
//
// ZoneSpreadPolicies come on top: package serve keeps what they need and package policy decides what they mean
// (docs/zonespreadpolicy.md). Pods that no policy selects are not affected.
//
// # Concurrency
//
// One plugin serves one profile; all profiles of a scheduler share one index of counts. The extension
// points may be called as the framework calls them: PreFilter and PreScore from the scheduling cycle,
// Filter and Score from many goroutines of it, hints from under the queue's lock.
//
// # Non-goals
//
// It evicts nothing and moves nothing: it only decides about pods that are being scheduled. It does not
// look at the affinity between pods, nor at resources.
package zonespread
