// Package reservecache is the ReserveCache plugin: it keeps a ledger of what is assumed and bound on each
// node, so that capacity that was promised to a pod is accounted for from Reserve until the pod is gone.
//
// The ledger itself is in package ledger and knows nothing of the framework. This package feeds it: Reserve
// assumes, Unreserve forgets, PostBind finishes, and the handlers of the pod and node informers tell what
// the API server says. All profiles of a scheduler share one ledger, held by [Shared].
//
// The first scheduling cycle waits, bounded, until the handlers have synced, since the scheduler waits for
// its own handlers only. In pod-group cycles Reserve and Unreserve are rehearsals and change nothing.
//
// Non-goals: the plugin does not place pods and does not score nodes.
package reservecache
