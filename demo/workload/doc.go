// Package workload turns the figures of two published traces into the objects that the demo creates: nodes over zones,
// a Deployment for each side of each service, a ZoneSpreadPolicy for one of them, ZoneSurvivals, batch workers, and
// gangs (a PodGroup and the StatefulSet whose pods are its members).
//
// The package is pure: no clock, no I/O beyond the embedded files, and the same Options give the same Plan.
// data/README.md names the traces, and says what is derived from them and what is assumed. The directory objects has
// the objects.
//
// Non-goals: the package does not talk to a cluster and does not schedule. size.go only estimates how many nodes the
// workload needs.
package workload
