// Package board turns what the API server and the scheduler say at one moment
// into the demo's closing board, and judges on the way whether what must
// always be true is true.
//
// The package is pure: lists of API objects, parsed metrics and observed times
// go in, a Board comes out, and text or JSON from that. It recounts everything
// (requests on nodes, pods in zones, members of gangs) with code that shares
// nothing with the plugins, so that it can contradict them.
//
// Non-goals: it does not read a cluster and it does not wait.
package board
