package placement

import (
	"maps"
	"slices"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// claimState is a target, and how far the planner has got with it.
type claimState struct {
	Target

	// needsReconcile means that Reconcile must look at the claim, and reconciled that it has done so at least once.
	needsReconcile, reconciled bool
	// seeks are the zones in which more is wanted. seeksNew means that more is wanted too in zones that the claim has
	// nothing to do with as far as Reconcile knows: a cycle may see a node there first.
	seeks    []string
	seeksNew bool
	// searches say which freed nodes of each node set the claim has looked at in vain.
	searches map[*nodeSet]*search
	// excess is what to give up on nodes that are too full. wereTooFull are the nodes that were, as long as something
	// is missing.
	excess      map[string]ledger.Resources
	wereTooFull map[string]bool
	// capped are the zones in which maxHeldFraction keeps something from being held.
	capped map[string]bool

	slotState
	amountState
}

// slotState belongs to a claim of slots.
type slotState struct {
	total int
	// known are the zones over which a claim without zones has been spread, including those that have lost their last
	// node.
	known  map[string]struct{}
	quotas []quota
	// counts are the slots by zone.
	counts map[string]count
	// taken is how many of the missing slots pods took since they were held. Others may take their place in any zone.
	taken int
	// away is how many slots were on nodes that were removed or ceased to be ready, and have no other place yet.
	away map[string]int
}

// count is a number of slots, and how many of them pods use that the slots include.
type count struct{ slots, used int }

// amountState belongs to a claim of amounts. Its nodes have nothing to do with each other, so each is looked at by
// itself.
type amountState struct {
	// nodesToReconcile are the nodes that Reconcile must look at.
	nodesToReconcile map[string]bool
	// lacks are the nodes on which a part is missing.
	lacks map[string]lack
}

// lack is a node on which a part of an amount is missing.
type lack struct {
	zone string
	// usable means that freed room of the node may be taken.
	usable bool
}

func newClaim(target Target) *claimState {
	c := &claimState{
		Target: target, needsReconcile: true, searches: map[*nodeSet]*search{},
		excess: map[string]ledger.Resources{}, wereTooFull: map[string]bool{}, capped: map[string]bool{},
		slotState: slotState{
			total: target.totalSlots(), known: map[string]struct{}{}, counts: map[string]count{}, away: map[string]int{},
		},
		amountState: amountState{nodesToReconcile: map[string]bool{}, lacks: map[string]lack{}},
	}
	for _, zone := range target.Known {
		c.known[zone] = struct{}{}
	}
	return c
}

// inheritFrom takes over from the version before what the nodes do not tell: what was lost with those that are gone,
// and what pods took.
func (c *claimState) inheritFrom(old *claimState) {
	c.taken = old.taken
	if !c.HasSlots() || !old.HasSlots() || !c.Requirements.SelectsLike(old.Requirements) {
		return
	}
	if slices.EqualFunc(c.Zones, old.Zones, func(a, b Zone) bool { return a.Name == b.Name }) {
		c.known, c.away, c.wereTooFull = old.known, old.away, old.wereTooFull
	}
}

// compareAge orders claims by who is served first.
func compareAge(a, b *claimState) int { return holds.CompareAge(&a.Claim, &b.Claim) }

// requestReconcile has Reconcile look at what the claim has on a node.
func (c *claimState) requestReconcile(nodeName string) {
	c.needsReconcile = true
	if !c.HasSlots() {
		c.nodesToReconcile[nodeName] = true
	}
}

// unfilled reports whether slots, or parts of amounts, are missing.
func (c *claimState) unfilled() bool {
	return c.slotsInAllZones() < c.total || len(c.lacks) > 0
}

// seeksRoom reports whether more is wanted anywhere.
func (c *claimState) seeksRoom() bool { return len(c.seeks) > 0 || c.seeksNew }

// zonesSought returns the zones of a set in which more is wanted.
func (c *claimState) zonesSought(nodes *nodeSet) []string {
	if !c.seeksNew {
		return c.seeks
	}
	zones := slices.Clone(c.seeks)
	for name := range nodes.zones {
		if c.quota(name) == nil && !slices.Contains(c.seeks, name) {
			zones = append(zones, name)
		}
	}
	slices.Sort(zones[len(c.seeks):])
	return zones
}

// slotsIn is how many slots a zone has.
func (c *claimState) slotsIn(zone string) int { return c.counts[zone].slots }

// slotsInAllZones is how many slots there are in all zones.
func (c *claimState) slotsInAllZones() (slots int) {
	for _, n := range c.counts {
		slots += n.slots
	}
	return slots
}

// forgetAway records that slots have been placed: they stand in for those of nodes that are away.
func (c *claimState) forgetAway(placed int) {
	for _, name := range slices.Sorted(maps.Keys(c.away)) {
		if c.away[name] > placed {
			c.away[name] -= placed
			return
		}
		placed -= c.away[name]
		delete(c.away, name)
	}
}

// roomForNextSlot returns the room that one more slot takes on a node on which the claim has that many: what it adds to
// what is unused. Pods that run there already are in it.
func (c *claimState) roomForNextSlot(slots int, owned *ledger.Resources) ledger.Resources {
	if !c.Inclusive() {
		return c.Slot
	}
	before, after := c.SlotsAmount(slots), c.SlotsAmount(slots+1)
	before, after = c.Unused(&before, owned), c.Unused(&after, owned)
	return after.Minus(&before)
}

// withinPerNode reports whether a node on which the claim has that many slots may have one more, its room aside.
func (c *claimState) withinPerNode(n *nodeRoom, slots int) bool {
	if !c.Inclusive() {
		owned := n.ownedBy(c.UID)
		slots += int(owned.Pods)
	}
	return c.PerNode == 0 || slots < c.PerNode
}
