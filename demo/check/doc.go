// Package check checks the demo's cluster before and after the loss of a zone. Each check reads objects of the API
// server (pods and their nodes, the statuses of the ZoneSpreadPolicy and of the ZoneSurvival, PodGroups) or the
// scheduler's metrics, and reports what it read.
//
// The package is pure. It counts with package census and reads statuses with package status, as the zonewise command
// does.
//
// Non-goals: the package does not judge where a pod could go; that is the scheduler's part. The demo's cluster is made
// so that only one gang and some batch work have no room.
package check
