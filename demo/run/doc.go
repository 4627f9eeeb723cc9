// Package run is the demo's course: it starts a cluster, lets the workload
// arrive, takes a zone away, and prints the board.
//
// Contract: Run returns nil only when everything on the board is true, an
// *InvariantError when a check failed, and any other error when the demo could
// not be carried through. Whatever it returns, and whenever its context ends,
// nothing is left behind.
//
// It waits for states of the API, never for a time to pass: a phase ends when
// every pod that the workload asks for exists and none of those that wait
// could be placed.
package run
