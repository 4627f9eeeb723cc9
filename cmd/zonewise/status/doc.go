// Package status shows a cluster at a glance: its zones, policies, reservations and gangs.
//
// The figures of policies and reservations come from their status; the report says if a status is missing or old. This
// package counts zones and gangs itself.
package status
