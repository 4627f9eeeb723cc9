// Package run plays the demo: it starts the cluster, creates the workload, has the room for the loss of any zone held,
// takes a zone away and brings it back, shows its progress, runs the checks at three moments (package check), and
// writes the closing board.
//
// It simulates three parts of the outage: it kills the kubelets of the zone, marks the nodes as
// node-lifecycle-controller would mark nodes that no longer report, and removes pods that no kubelet will ever finish.
// Kubernetes' controllers and the scheduler do everything else.
package run
