package floor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Claim says how many slots are to fit, and where. A Claim that was passed to a Floor must not be changed.
type Claim struct {
	UID types.UID
	// Name is for messages.
	Name string
	// Created orders claims by age, those of one moment by Name.
	Created time.Time
	// Priority protects the slots: pods of a higher one may take their room.
	Priority int32
	// Slot is the size of one slot, with a place for one pod.
	Slot ledger.Resources
	// PerNode is how many slots a node has at most, the owners that run there counted; 0 for any number.
	PerNode int
	// Inclusive means that the owners that run count as slots: those of a Guarantee, and Required ones. Slots of
	// headroom are wanted beside all pods.
	Inclusive bool
	// Required means that owners run only in what the claim has on their node.
	Required bool
	// Nodes says which nodes may have slots.
	Nodes *NodeRequirements
	// Zones are the slots by zone; nil if Slots are spread over the zones that have a node which may have them.
	Zones map[string]int
	Slots int
	// Seed is what a status says that the claim had, for a Floor that is new: see [Floor.SetClaims].
	Seed []Seed
}

// Seed is slots of one size on a node.
type Seed struct {
	Node  string
	Slots int
	Size  ledger.Resources
}

// Compare orders claims by age, the oldest first.
func (c *Claim) Compare(other *Claim) int {
	return cmp.Or(c.Created.Compare(other.Created), cmp.Compare(c.Name, other.Name), cmp.Compare(c.UID, other.UID))
}

// claimState is a claim with what it has.
type claimState struct {
	Claim
	desired  map[string]int
	holdings map[*node]*holding
	zones    map[string]*zoneState
	// kept is how many slots of former sizes or on former nodes it has, see [formerSlots].
	// keptCost is how many slots these stand for, in thousandths.
	kept, keptCost int
	// usable is the node of each zone that was last found to be one which may have slots.
	usable map[string]*node
	// partly are the nodes with owners that take up more slots than there are.
	partly map[*node]*holding
	// seed is to be taken over by the next Settle.
	seed []Seed
	// open means that it lacks slots or has too many: Settle looks at it. due means that it does so at the next call,
	// whether or not room has become free.
	open, due bool
	// version changes with what a report says.
	version uint64
}

// zoneState is what a claim has in a zone.
type zoneState struct {
	// unused counts the slots without an owner, used those that owners take up, and covered how many of the used ones
	// have room for the rest of a slot, which is held; rests counts those of these that could go, see [holding.rests].
	unused, used, covered, rests int
	// searched means that no node of the zone had room for one more slot, and only one that has got room since can.
	searched bool
}

func newClaimState(c *Claim) *claimState {
	return &claimState{Claim: *c, holdings: map[*node]*holding{}, zones: map[string]*zoneState{}, partly: map[*node]*holding{}, usable: map[string]*node{}, seed: c.Seed}
}

func (c *claimState) zone(name string) *zoneState {
	z := c.zones[name]
	if z == nil {
		z = &zoneState{}
		c.zones[name] = z
	}
	return z
}

// wanted is how many unused slots a zone is to have.
func (c *claimState) wanted(zone string) int {
	n := c.desired[zone]
	if z := c.zones[zone]; c.Inclusive && z != nil {
		n -= z.used
	}
	return max(0, n)
}

// missing is how many unused slots it lacks in all zones together; negative if it has too many.
func (c *claimState) missing() (n int) {
	for zone := range c.desired {
		n += c.wanted(zone)
	}
	for _, z := range c.zones {
		n -= z.unused
	}
	return n
}

// inOrder reports whether a claim has what it wants, where it wants it.
func (c *claimState) inOrder() bool {
	if c.kept > 0 || len(c.seed) > 0 {
		return false
	}
	for zone := range c.desired {
		if c.zone(zone).unused != c.wanted(zone) {
			return false
		}
	}
	for zone, z := range c.zones {
		if z.unused > 0 && c.wanted(zone) == 0 || z.covered < min(z.used, c.desired[zone]) || z.covered > c.desired[zone] && z.rests > 0 {
			return false
		}
	}
	return true
}

// homes are the zones in which slots are desired, sorted by name.
func (c *claimState) homes() []string { return slices.Sorted(maps.Keys(c.desired)) }

// apportion distributes n slots over zones, the first ones by name get one more.
func apportion(n int, zones []string) map[string]int {
	desired := make(map[string]int, len(zones))
	for i, zone := range zones {
		desired[zone] = n / len(zones)
		if i < n%len(zones) {
			desired[zone]++
		}
	}
	return desired
}
