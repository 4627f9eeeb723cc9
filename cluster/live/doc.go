// Package live keeps a snapshot of a cluster current.
//
// # Contract
//
// [Start] watches, with the permissions of the caller, the kinds that a snapshot has. [Live.Sync] returns when nodes and
// pods have been listed, and every other kind has been listed or refused. [Live.Snapshot] returns the cluster as it is
// known at that moment, and [Live.Changed] receives when it has changed. Everything ends with the context.
//
// A kind that is not installed, or that the caller may not list, is in Snapshot.Missing until that changes. A kind that the
// caller may list but not watch is listed again about every half minute. Errors of the connection are in [Live.Troubles]; the
// last known state stays.
//
// # Non-goals
//
// There is no order between kinds: a pod may be seen before its node.
package live
