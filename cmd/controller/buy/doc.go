// Package buy is the part of the controller that asks an autoscaler for the nodes of ZoneReservations and ZoneSurvivals
// with spec.buy.
//
// # Contract
//
// The part keeps a CapacityBuffer and a PodTemplate for each zone and size that an object wants (package
// zonewise.dev/buy), by server-side apply, and writes what is asked for and what the autoscaler answers into the status
// of the object. The object owns both: they go with it. What no object wants any more is deleted. Nothing is
// remembered: the CapacityBuffers are the state, and another process continues from them.
//
// Only objects with the part's label are read, and only those whose owner is the object in that label are changed or
// deleted. An object of somebody else that has a name of ours is a conflict, which the status reports.
//
// The cluster may have no CapacityBuffers; the conditions then say so.
//
// # Non-goals
//
// No autoscaler's module is linked, and no node is bought here.
package buy
