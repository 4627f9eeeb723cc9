// Package cluster runs a control plane for the demo: etcd, kube-apiserver,
// kube-controller-manager, kwok (which plays the kubelets) and the scheduler,
// as processes on loopback with free ports, a certificate authority of their
// own and an identity each.
//
// Contract: Start returns when everything answers, or with one error that
// names the guilty component and carries the end of its log; it honours its
// context throughout. Whatever happens to the demo's process, nothing of the
// cluster survives it: Stop ends the processes and removes the directory, on
// Linux the kernel kills the children when their parent dies, and a small
// guard process does both when the demo is killed without a chance to.
//
// Non-goals: it is no way to run a cluster that matters. etcd does not sync to
// disk, nodes are simulated, and everything is deleted at the end.
package cluster
