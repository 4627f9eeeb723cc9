// Package cli runs the zonewise command against a real API server, on which the scheduler of this repository places
// the pods, with the permissions of manifests/rbac/viewer and with fewer.
package cli
