// Package cluster runs the demo's control plane as processes on the loopback interface: etcd and kube-apiserver,
// started by controller-runtime's envtest, some of kube-controller-manager's controllers, one kwok for each zone, which
// simulates the kubelets of its nodes, zonewise-scheduler with the shipped profile, and the controller of
// ZoneSurvivals, both with the permissions of the shipped roles.
//
// Everything is in one directory, which is in the command line of each process. Stop leaves no process and no file. If
// the demo is killed, both stay.
//
// Non-goals: this is not a cluster to work with. etcd does not fsync, API Priority and Fairness is off, and nodes are
// simulated.
package cluster
