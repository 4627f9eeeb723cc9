// Package survival is the part of the controller that answers ZoneSurvivals.
//
// # Contract
//
// When the cluster has changed in a way that may change an answer, or when the last answer is old, the part replays the
// losses that ZoneSurvivals ask for (package zonewise.dev/survival). It writes the status of ZoneSurvivals, an event
// when an answer changes, and the ZoneReservation of each ZoneSurvival with hold; nothing else. It never touches a
// ZoneReservation that does not belong to the ZoneSurvival. While it does not run, answers grow old, and what is held
// stays held.
//
// A full round begins only when the process has used no more than its fraction of a core since the last one began. A
// round is not slowed down.
//
// # Non-goals
//
// It evicts no pod. The scheduler holds the room.
package survival
