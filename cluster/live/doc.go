// Package live keeps a snapshot of a cluster current.
//
// # Contract
//
// [Start] watches, with the permissions of the caller, the kinds that a snapshot has. [Live.Sync] returns when nodes
// and pods have been listed, and every other kind has been listed, or refused, or has had no answer for half a minute.
// [Live.Snapshot] returns the cluster as it is known at that moment, and [Live.Changed] receives when it has changed.
// Everything ends with the context.
//
// A kind that is not installed, that the caller may not list, or of which the API server does not answer is in
// Snapshot.Missing until that changes; see internal/informer for how each is read. So is a kind that has not been read
// for half a minute, of which the last known state stays. A kind that the caller may list but not watch is listed again
// about every half minute. [Live.Lacks] says what of the cluster is not known, [Live.Troubles] what is not current.
//
// # Non-goals
//
// There is no order between kinds: a pod may be seen before its node.
package live
