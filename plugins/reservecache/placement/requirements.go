package placement

import "zonewise.dev/plugins/reservecache/floor"

// NodeRequirements say which nodes may have slots, whatever their room.
type NodeRequirements = floor.NodeRequirements

// Unmet is what keeps a node from having slots of a claim, whatever its room; empty for nothing.
type Unmet = floor.Unmet

// What may be unmet.
const (
	NotSelected = floor.NotSelected
	Cordoned    = floor.Cordoned
	NotReady    = floor.NotReady
	Tainted     = floor.Tainted
)
