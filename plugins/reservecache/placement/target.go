package placement

import (
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// LossPolicy says what happens to the slots of a zone that no longer has a node for them.
type LossPolicy int

// The policies.
const (
	// Shift means that they are held in the claim's other zones until the zone is back.
	Shift LossPolicy = iota
	// Keep means that they are not held until the zone is back.
	Keep
)

// Zone is a number of slots in a zone.
type Zone struct {
	Name  string
	Slots int
}

// Target is a claim with what it is to hold: slots in zones, or amounts on nodes that it names.
type Target struct {
	// Claim needs a UID. Its Slot tells the form: it is empty for a claim of amounts.
	holds.Claim
	// SameTerms means that the same pods may use what is held as in the version before: only what is wanted differs.
	SameTerms bool
	// Requirements say which nodes may have slots, or amounts.
	Requirements *NodeRequirements

	// Zones says how many slots each zone gets; no zone is named twice. If it is empty, Slots are spread evenly over
	// all zones with nodes that the node selector selects.
	Zones []Zone
	Slots int
	// Known are zones over which the slots were spread before, by another planner. They count although they may have
	// lost all nodes.
	Known []string
	// PerNode is how many slots, and owners outside of them, a node may have together; 0 for no limit.
	PerNode    int
	OnZoneLoss LossPolicy

	// Nodes are the amounts, places for pods among them, by node. They must not change.
	Nodes map[string]ledger.Resources
}

// totalSlots is the number of slots in all zones.
func (t *Target) totalSlots() int {
	if len(t.Zones) == 0 {
		return t.Slots
	}
	n := 0
	for _, z := range t.Zones {
		n += z.Slots
	}
	return n
}
