// Package survival is the controller of ZoneSurvivals: "kube-scheduler survival", a program of its own in the scheduler's
// image.
//
// # Contract
//
// The controller follows the cluster, and replays the losses that ZoneSurvivals ask for (package zonewise.dev/survival) when it
// has changed in a way that may change an answer, and when the last answer is old. It writes the status of ZoneSurvivals, an
// event when an answer changes, the ZoneReservation of each ZoneSurvival with hold, and its lease; nothing else. A ZoneReservation
// that does not belong to the ZoneSurvival is never touched. While it does not run, answers grow old, what is held stays held, and
// nothing else happens.
//
// One replica works, the holder of the lease. A process that loses the lease ends.
//
// A round begins only when the process has used no more than the allowed fraction of a core since the last one began, by
// the CPU time of the process itself. A round is not slowed down.
//
// # Non-goals
//
// It is not in the path of scheduling, and evicts no pod. Holding room is the scheduler's part.
package survival
