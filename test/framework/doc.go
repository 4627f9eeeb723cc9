// Package framework runs the whole kube-scheduler with the plugins of the pack, in the profiles that the project ships,
// on an API server in memory. Each test has a bubble of time for itself (testing/synctest): hours pass at once, and
// that nothing happens is known as soon as no goroutine has anything left to do. The files are named after the plugin
// that they are about.
package framework
