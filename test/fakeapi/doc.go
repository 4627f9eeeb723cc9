// Package fakeapi is an API server in memory for tests that run a whole kube-scheduler: client-go's fake clientset, and
// what it lacks for that. It binds pods, deletes them with a grace period, gives every object a version, and passes on
// copies in its watches.
package fakeapi
