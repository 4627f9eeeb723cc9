// Package cluster runs the demo's control plane as processes on the loopback interface: etcd and kube-apiserver, started by
// controller-runtime's envtest, kube-controller-manager, one kwok for each zone, which plays the kubelets of its nodes, and
// zonewise-scheduler with the shipped profile and the rights of the shipped roles.
//
// Everything is in one directory, and Stop leaves neither a process nor a file. When the demo is killed, a second process
// that it has started, the guard, does the same.
//
// Non-goals: it is no cluster to work with. etcd has no fsync, API Priority and Fairness is off, and nodes are simulated.
package cluster
