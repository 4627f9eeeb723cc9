// Package check checks the demo's cluster at three moments: before a zone is lost, while it is lost, and after its
// return. Each check reads what the API server has (pods and their nodes, events, the statuses of
// ZoneSpreadPolicies and ZoneReservations, PodGroups) or of the scheduler's metrics, and comes with what was read.
//
// The package is pure. It counts with package census and reads statuses with package status, as the zonewise command does.
//
// Non-goals: the package does not judge where a pod could go; that is the scheduler's part. The demo's cluster is made so
// that only one gang and some batch work have no room.
package check
