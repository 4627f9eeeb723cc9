// Package manifests applies the files of zonewise.dev/manifests to a real API server, the way
// docs/install.md says, and runs the scheduler with the permissions that they give and no others.
//
// It has an API server of its own, since it changes what a whole cluster shares, and looks at that server's
// audit log: what the scheduler was refused, and which of its permissions it used.
package manifests
