// Package snapshot has the objects of a cluster at one moment: those that a scheduler uses, and those that reports
// show.
//
// # Contract
//
// [Read] takes a snapshot with the permissions of the caller: it needs nodes and pods, and says in Snapshot.Missing
// what else it could not read. [Save] and [Load] keep one in a file, compressed when its name ends in .gz. [Trim]
// removes what no scheduler uses: environment variables, commands, annotations, managed fields. Objects of a snapshot
// are never modified: package sim shares them, and with [Sharing] pods of one template share what is equal.
//
// # Non-goals
//
// A snapshot is not a backup. Secrets and ConfigMaps are never read.
package snapshot
