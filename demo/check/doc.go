// Package check checks the demo's cluster before a zone is lost, and after that. Each check reads what the API server has (pods and
// their nodes, the statuses of the ZoneSpreadPolicy and of the ZoneSurvival, PodGroups) or the scheduler's metrics, and comes with
// what was read.
//
// The package is pure. It counts with package census and reads statuses with package status, as the zonewise command does.
//
// Non-goals: the package does not judge where a pod could go; that is the scheduler's part. The demo's cluster is made so
// that only one gang and some batch work have no room.
package check
