// Package live keeps a snapshot of a cluster current.
//
// # Contract
//
// [Start] watches the kinds that a snapshot has with the permissions of the caller. [Live.Sync] returns when nodes and
// pods are there and every other kind has been answered for. [Live.Snapshot] returns the cluster as it is known at
// that moment, and [Live.Changed] says that it has become another one. Everything ends with the context.
//
// A kind that is not installed or may not be listed is in Snapshot.Missing until that changes. One that may be listed
// and not watched is listed again and again, at most every half minute or so. What is wrong with the connection is
// in [Live.Troubles]; the last known state stays.
//
// # Non-goals
//
// It has no order between kinds: a pod may be seen before its node.
package live
