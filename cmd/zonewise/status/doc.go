// Package status shows a cluster at a glance: its zones, policies, reservations and gangs.
//
// Figures of policies and reservations are those that the scheduler wrote into their status, and the report says where
// there are none, or old ones; what has no status is counted here.
package status
