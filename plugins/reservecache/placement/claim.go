package placement

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

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

// Target is what a reservation asks for: slots, or amounts of given nodes.
type Target struct {
	// Claim is the claim of the slots or amounts. Its UID must be set, and Slot or Amounts.
	Claim holds.Claim
	// Nodes are the amounts, places for pods among them, by node. They must not change.
	Nodes map[string]ledger.Resources
	// SameTerms means that the same pods may use what is held as in the version before: only what is wanted differs.
	SameTerms bool
	// Zones says how many slots each zone gets; no zone is named twice. If it is empty, Slots are spread evenly over all zones
	// with nodes that the fit selects.
	Zones []Zone
	Slots int
	// Known are zones over which the slots were spread before, by another planner. They count although they may have lost all nodes.
	Known []string
	// PerNode is how many slots, and owners outside of them, a node may have together; 0 for no limit.
	PerNode    int
	Fit        *Fit
	OnZoneLoss LossPolicy
}

// totalSlots is the number of slots in all zones.
func (d *Target) totalSlots() int {
	if len(d.Zones) == 0 {
		return d.Slots
	}
	n := 0
	for _, z := range d.Zones {
		n += z.Slots
	}
	return n
}

// quota is how many slots a zone should have for now.
type quota struct {
	zone  string
	slots int
	// own is how many it should have if no zone is lost.
	own  int
	lost bool
}

// claimState is a target with the planner's state of it.
type claimState struct {
	Target
	total int
	// known are the zones over which a claim without zones has been spread, including those that have lost their last
	// node.
	known  map[string]struct{}
	quotas []quota
	// counts are the slots by zone.
	counts map[string]count
	// taken is how many of the missing slots pods took since they were held. Others may take their place in any zone.
	taken int

	// dirty means that Reconcile must look at the claim.
	dirty bool
	// seeks are the zones in which one more slot is wanted; empty if the claim has all its slots.
	seeks []string
	// searches are what was found in the rooms of the worker and of the cycles.
	searches map[*rooms]*search
	// owners is how many of the claim's pods are on a node, by name.
	owners map[string]int
	// capped are the zones in which the bound on what is held keeps a slot from being placed.
	capped map[string]bool
	// away is how many slots were on nodes that were removed or ceased to be ready, and have no other place yet. Of a claim for amounts only
	// the names count.
	away map[string]int
	// full are nodes that became too full. Their slots have no other place yet.
	full map[string]bool
	// excess is what to give up on a node.
	excess map[string]ledger.Resources
	amounts
}

// count is a number of slots, and how many of them pods use that the slots include.
type count struct{ slots, used int }

// span is the time from one point of freeing to another.
type span struct{ from, to uint64 }

// extendTo makes the span end at to. It begins at from unless it ended there, or later.
func (s *span) extendTo(from, to uint64) {
	if s.to < from {
		s.from = from
	}
	s.to = to
}

// search is up to which point of freeing a claim has looked at nodes in vain.
type search struct {
	// looked is, by zone, the point up to which no freed node has room for a slot.
	looked map[string]uint64
	// passed is a span in which no node was freed that has room for a slot, in any zone.
	passed span
}

// searchOf returns that in some rooms.
func (c *claimState) searchOf(b *rooms) *search {
	s := c.searches[b]
	if s == nil {
		s = &search{looked: map[string]uint64{}}
		c.searches[b] = s
	}
	return s
}

// lookedAt is the point up to which no freed node of a zone has room for a slot.
func (s *search) lookedAt(zone string) uint64 {
	if at := s.looked[zone]; at < s.passed.from || at > s.passed.to {
		return at
	}
	return s.passed.to
}

func newClaim(d Target) *claimState {
	c := &claimState{
		Target: d, total: d.totalSlots(), dirty: true,
		known: map[string]struct{}{}, counts: map[string]count{}, searches: map[*rooms]*search{}, owners: map[string]int{},
		capped: map[string]bool{}, away: map[string]int{}, full: map[string]bool{}, excess: map[string]ledger.Resources{},
		amounts: amounts{stale: map[string]bool{}, drafted: map[string]bool{}, lacks: map[string]lack{}},
	}
	for _, zone := range d.Known {
		c.known[zone] = struct{}{}
	}
	return c
}

// inheritFrom takes over from the version before what the nodes do not tell: what was lost with those that are gone, and what pods took.
func (c *claimState) inheritFrom(old *claimState) {
	c.owners, c.taken = old.owners, old.taken
	if c.Claim.Amounts || old.Claim.Amounts || !slices.Equal(c.Fit.selector, old.Fit.selector) {
		return
	}
	if slices.EqualFunc(c.Zones, old.Zones, func(a, b Zone) bool { return a.Name == b.Name }) {
		c.known, c.away, c.full = old.known, old.away, old.full
	}
}

func (c *claimState) claimUID() types.UID { return c.Claim.UID }

// slotsIn is how many slots a zone has.
func (c *claimState) slotsIn(zone string) int { return c.counts[zone].slots }

// slotsInAllZones is how many slots there are in all zones.
func (c *claimState) slotsInAllZones() (slots int) {
	for _, n := range c.counts {
		slots += n.slots
	}
	return slots
}

// unfilled reports whether slots, or parts of amounts, are missing.
func (c *claimState) unfilled() bool {
	return c.slotsInAllZones() < c.total || len(c.lacks) > 0
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

// apportion distributes the slots over the zones, whose nodes tallies counts.
func (c *claimState) apportion(tallies map[string]*tally) {
	all := c.quotas[:0]
	for _, z := range c.Zones {
		all = append(all, quota{zone: z.Name, slots: z.Slots})
	}
	if len(c.Zones) == 0 {
		for zone, t := range tallies {
			if t.selected > 0 {
				c.known[zone] = struct{}{}
			}
		}
		for zone := range c.known {
			all = append(all, quota{zone: zone})
		}
	}
	slices.SortFunc(all, func(a, b quota) int { return cmp.Compare(a.zone, b.zone) })
	if len(c.Zones) == 0 {
		spread(c.Slots, all)
	}
	shifting := 0
	var left []quota
	for i := range all {
		q := &all[i]
		q.own = q.slots
		t := tallies[q.zone]
		q.lost = t == nil || t.usable == 0
		if !q.lost {
			left = append(left, quota{zone: q.zone})
		} else if c.OnZoneLoss == Shift {
			// Pods that keep running in slots there keep the slots.
			stays := min(q.slots, c.counts[q.zone].used)
			shifting += q.slots - stays
			q.slots = stays
		}
	}
	c.quotas = all
	if len(left) == 0 {
		for i := range all {
			all[i].slots = all[i].own
		}
		return
	}
	spread(shifting, left)
	for _, extra := range left {
		c.quota(extra.zone).slots += extra.slots
	}
}

// spread distributes n over the zones in turn.
func spread(n int, zones []quota) {
	for i := 0; i < n && len(zones) > 0; i++ {
		zones[i%len(zones)].slots++
	}
}

// quota returns the zone's, or nil.
func (c *claimState) quota(zone string) *quota {
	for i := range c.quotas {
		if c.quotas[i].zone == zone {
			return &c.quotas[i]
		}
	}
	return nil
}

// missingInAnyZone is how many slots are wanted in any zone, once no zone that has room lacks part of its quota. For a claim without
// zones that is all that is missing. For one with zones these slots replace those that pods took: during a rolling update, a pod may
// leave another zone than the one that the next pod comes to.
func (c *claimState) missingInAnyZone() int {
	n := c.total - c.slotsInAllZones()
	if len(c.Zones) > 0 {
		n = min(n, c.taken)
	}
	// Slots that a lost zone lacks are not wanted elsewhere here.
	for i := range c.quotas {
		if q := &c.quotas[i]; q.lost {
			n -= max(0, q.slots-c.slotsIn(q.zone))
		}
	}
	return n
}

// mayAddSlot reports whether one more slot is wanted in a zone that lacks one: slots are missing, or surplus unused ones in other
// zones can be given up for it.
func (c *claimState) mayAddSlot() bool {
	spare := c.total - c.slotsInAllZones()
	for zone, n := range c.counts {
		quota := 0
		if q := c.quota(zone); q != nil {
			quota = q.slots
		}
		spare += max(0, min(n.slots-n.used, n.slots-quota))
	}
	return spare > 0
}

// updateSeeks computes the zones in which one more slot is wanted.
func (c *claimState) updateSeeks() {
	c.seeks = c.seeks[:0]
	anywhere, grows := c.missingInAnyZone() > 0, c.mayAddSlot()
	for i := range c.quotas {
		if q := &c.quotas[i]; !q.lost && (anywhere || grows && c.slotsIn(q.zone) < q.slots) {
			c.seeks = append(c.seeks, q.zone)
		}
	}
}

// slotTakes returns the room that one more slot takes on a node on which the claim has that many: what it adds to what is unused. Pods that
// run there already are in it.
func (c *claimState) slotTakes(slots int, owned *ledger.Resources) ledger.Resources {
	if !c.Claim.Inclusive() {
		return c.Claim.Slot
	}
	before, after := c.Claim.Slots(slots), c.Claim.Slots(slots+1)
	before, after = c.Claim.Unused(&before, owned), c.Claim.Unused(&after, owned)
	return after.Less(&before)
}

// mayHaveAnother reports whether a node on which the claim has that many slots may have one more, its room aside.
func (c *claimState) mayHaveAnother(n *nodeRoom, slots int) bool {
	if !c.Claim.Inclusive() {
		owned := n.ownedBy(c.claimUID())
		slots += int(owned.Pods)
	}
	return c.PerNode == 0 || slots < c.PerNode
}
