// Package parts has what the parts of the controller share.
//
// # Contract
//
// A part is a Reconciler of controller-runtime that computes something from the cluster and writes it to the API
// server. It has no request for each object, but two for all of them: [Look] when the cluster has changed, and [Step],
// which it adds itself ([Shared.Wake]), while it has long work that is done in steps. RequeueAfter is the only clock.
// All parts have one cluster in memory ([Shared.Read]) and one client.
//
// One Reconcile of the process runs at a time: a copy of a cluster (package sim) knows that it is at rest by the
// goroutines of the process. A part bounds its work by a [Meter]. Meters count the CPU time of the whole process, so
// that all parts together use no more than the fraction of a core that the program was given: what one part uses, the
// others wait for.
//
// The garbage collector keeps to the memory limit of the container ([LimitMemory]). A part that copies the cluster asks
// [Shared.TooLarge] first.
//
// # Adding a part
//
// Write a package beside cmd/controller/survival whose Describe returns a [Description]: the name of its flag, what the
// flag turns on, flags of its own, the prefix of its metrics, and how to make it. Add it to the list in
// cmd/controller/command.go. What it may write beyond reading the cluster goes into a ClusterRole of its own, in a
// component of manifests/components that adds the flag to the arguments of the Deployment, and into the chart's values
// under controller.
//
// # Non-goals
//
// Parts do not know of each other. What one has to know of another is in the API.
package parts
