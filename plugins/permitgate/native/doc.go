// Package native reads and writes the PodGroups of Kubernetes' own API, scheduling.k8s.io. It is what a build for a
// version of Kubernetes with another such API replaces.
//
// # Contract
//
// A PodGroup with a gang policy asks for a guarded gang ([Read]), and so does each that is part of a composite group
// ([ReadComposite]). Conditions are of this package's own types; kube-scheduler's are left alone.
//
// # Non-goals
//
// The package knows nothing of pods, and keeps no state of gangs.
package native
