// Package container runs the scheduler's image under an OCI runtime, runc or crun, the way a node would run the
// Deployment of zonewise.dev/manifests: as the image's user, without capabilities, with a root that is mounted
// read-only, and with the token of its ServiceAccount where a pod finds it. The scheduler then places pods of a real
// API server.
//
// A runtime needs root: elsewhere hack/test.sh leaves these tests out, and says so.
package container
