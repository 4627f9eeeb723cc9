// Package status shows a cluster at a glance: its zones, policies, reservations and gangs.
//
// Figures of policies and reservations come from their status, and the report says if there is none or an old one. Zones
// and gangs are counted here.
package status
