// Package app is the command of kube-scheduler with the plugins of Zonewise in its registry.
//
// # Contract
//
// It mirrors package app of k8s.io/kubernetes/cmd/kube-scheduler as far as that package does not hand the leader
// election over: what its NewSchedulerCommand does between the command line and the running scheduler, with one step
// more between Setup and Run. Flags, endpoints, metrics, signals and exit codes are those of kube-scheduler. A
// scheduler with plugins of a user's own gives their options to NewSchedulerCommand.
package app
