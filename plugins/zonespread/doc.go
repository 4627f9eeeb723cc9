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
// The plugin is an adapter. The pure package counts has the logic of constraints: how many matching pods each topology
// domain holds, and the checks and scores that follow.
//
// For ZoneSpreadPolicies (docs/zonespreadpolicy.md) package serve keeps the data and package policy has the logic. Pods
// that no policy selects are not affected. The way of a pod through the plugin:
//
//	PreFilter    index.go counts for its constraints and policies; policy.Evaluate applies each policy to every zone
//	Filter       checkConstraint, then the zone of the node in each policy's table
//	PostFilter   what refused each node: runs of full zones, zones that its volumes exclude, and a waiter to be woken
//	PreScore     counts for its soft constraints
//	PostBind     the pod no longer waits, and its zone has room
//
// # Concurrency
//
// One plugin serves one profile; all profiles of a scheduler share one index of counts. The extension
// points may be called as the framework calls them: PreFilter and PreScore from the scheduling cycle,
// Filter and Score from many goroutines of it, hints from under the queue's lock.
//
// # Non-goals
//
// The plugin evicts and moves no pods: it only decides about pods that are being scheduled. It does not
// look at affinity between pods or at resources.
package zonespread
