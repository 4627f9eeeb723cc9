// Package snapshot has the objects of a cluster at one moment, as far as the zonewise command looks at them.
//
// # Contract
//
// [Read] takes a snapshot with the permissions of the caller: it needs nodes and pods, and says in Snapshot.Missing
// what else it could not read. [Save] and [Load] keep one in a file, compressed when its name ends in .gz. [Trim]
// leaves out what nobody asks for here: environments, commands, annotations, managed fields. A snapshot is
// not changed once it was read; those who compute with it copy what they change.
//
// # Non-goals
//
// It is no backup. Secrets and ConfigMaps are never read.
package snapshot
