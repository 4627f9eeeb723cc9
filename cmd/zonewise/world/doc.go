// Package world answers where pods may go in a cluster as a snapshot has it, and plays what follows when nodes are
// lost or pods are added.
//
// # Contract
//
// A [World] is built from a snapshot, which it does not change, so that any number of worlds may share one. It is not
// safe for concurrent use. It is pure: it looks at the snapshot and at the time that it is given.
//
// What counts is what the scheduler's filters ask, with the pack's own formulas: requests and allocatable
// (reservecache/ledger), topologySpreadConstraints (zonespread/skew), ZoneSpreadPolicies with weights, caps and
// unavailable zones (zonespread/policy), holds of ZoneReservations, plans of gangs (permitgate/plan); and from upstream's
// plugins cordons, taints, node selector and affinity, affinity between pods, host ports, and the nodes of bound volumes.
//
// # Non-goals
//
// Which of the allowed nodes the scheduler would take depends on scores that nobody can know from outside. The
// world takes the zone that policies and constraints prefer, then the node with the largest free share; of a gang the
// nodes of its plan. It preempts and evicts nobody, knows no devices (resource claims), no volumes that are still to be
// made, no nodes that an autoscaler would add, and neither nominations nor the room that gangs hold for their plans.
package world
