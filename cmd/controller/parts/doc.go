// Package parts is the frame of the controller: what its parts share, and how they take turns.
//
// # Contract
//
// A [Part] computes something from the cluster and writes it to the API server. [Run] gives every part its turn, one
// after the other, when the cluster has changed and when the part has asked for it. All of that happens in one process
// that leads, with one [live.Live] cluster and one client.
//
// One part works at a time: a copy of a cluster (package sim) knows that it is at rest by the goroutines of the
// process. A part bounds its work by a [Meter]. Meters count the CPU time of the whole process, so that all parts
// together use no more than the fraction of a core that the program was given: what one part uses, the others wait for.
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
