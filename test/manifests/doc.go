// Package manifests applies the files of zonewise.dev/manifests to a real API server, the way
// docs/install.md says, and runs the scheduler with the permissions that they give and no others.
//
// It has an API server of its own, since it changes objects that a whole cluster shares. It reads that server's
// audit log for refused requests of the scheduler, and for the permissions that the scheduler used.
package manifests
