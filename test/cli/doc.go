// Package cli runs the zonewise command, and the controller, against a real API server on which the scheduler of this
// repository places the pods: each with the permissions that the manifests give it, the command also with fewer.
// Package test/sim compares certificates with real losses.
package cli
