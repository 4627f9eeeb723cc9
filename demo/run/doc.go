// Package run tells the demo's story: it starts the cluster, lets the workload arrive, takes a zone away and brings it back,
// shows how far it is, looks at what must be true at three moments (package check), and writes the closing board.
//
// It makes the demo's part of an outage only: it kills the kubelets of the zone, says to the API server what
// node-lifecycle-controller says of nodes that report no more, and removes pods that no kubelet will ever finish. Everything
// else is done by Kubernetes' controllers and by the scheduler.
package run
