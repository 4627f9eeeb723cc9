// Package live keeps a snapshot of a cluster current.
//
// # Contract
//
// [Start] watches the kinds that a snapshot has with the permissions of the caller. [Live.Sync] returns when nodes and
// pods have been listed, and every other kind has been listed or refused. [Live.Snapshot] returns the cluster as it is
// known at that moment, and [Live.Changed] receives when it has changed. Everything ends with the context.
//
// A kind that is not installed or may not be listed is in Snapshot.Missing until that changes. One that may be listed
// but not watched is listed again about every half minute. Errors of the connection are in [Live.Troubles]; the last
// known state stays.
//
// # Non-goals
//
// There is no order between kinds: a pod may be seen before its node.
package live
