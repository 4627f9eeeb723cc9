// Package survival is the controller of ZoneSurvivals: "kube-scheduler survival", a program of its own in the scheduler's
// image.
//
// # Contract
//
// The controller follows the cluster. When the cluster has changed in a way that may change an answer, or when the last answer is
// old, it replays the losses that ZoneSurvivals ask for (package zonewise.dev/survival). It writes the status of ZoneSurvivals, an
// event when an answer changes, the ZoneReservation of each ZoneSurvival with hold, and its lease; nothing else. It never touches a
// ZoneReservation that does not belong to the ZoneSurvival. While it does not run, answers grow old, what is held stays held, and
// nothing else happens.
//
// One replica works: the holder of the lease. A process that loses the lease exits.
//
// A round begins only when the process has used no more than the allowed fraction of a core since the last round began,
// measured by the CPU time of the process itself. A round is not slowed down.
//
// # Non-goals
//
// The controller is not in the path of scheduling, and evicts no pod. The scheduler holds the room.
package survival
