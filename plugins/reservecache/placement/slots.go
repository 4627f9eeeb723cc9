package placement

import (
	"cmp"
	"slices"
	"strings"

	"zonewise.dev/plugins/reservecache/holds"
)

// reconcileSlotsLocked brings the slots of a claim in line with its target, in one draft. It returns how many nodes it
// looked at, and whether the draft was recorded.
func (p *Planner) reconcileSlotsLocked(c *claimState, result *Result) (looks int, recorded bool) {
	p.countLocked(c)
	looks, recorded = p.placeLocked(c, p.ledgerNodes, 0, result, func(d *draft) {
		c.apportion(p.nodeCounts[c.Requirements.Key()].zones)
		d.giveUpMisplaced()
		d.placeMissing()
		d.giveUpSurplus()
		d.followOwners()
	})
	clear(c.excess)
	c.reconciled = true
	return looks, recorded
}

// giveUpMisplaced lowers each node to the slots that may stay there. Slots of an old size get the new one as far as
// there is room.
func (d *draft) giveUpMisplaced() {
	for _, at := range d.sortedByName() {
		if !at.ready {
			d.claim.away[at.name] = max(1, at.slots)
		}
		slots := d.slotsThatMayStay(at)
		if at.before.Resized && at.node != nil {
			d.resize(at, slots)
		} else if slots < at.slots {
			d.setSlots(at, slots)
		}
	}
}

// slotsThatMayStay is how many slots may stay on a node, its room aside unless it is known to be too full. Used ones
// may stay on a node that takes no slots any more.
func (d *draft) slotsThatMayStay(at *draftNode) int {
	c, unused := d.claim, d.unusedSlots(at)
	used := at.slots - unused
	switch {
	case !at.ready || c.quota(at.zone) == nil:
		return 0
	case at.node == nil: // only the cycles see it yet
		return at.slots
	case !c.Requirements.MetBy(at.node.object):
		return used
	}
	unused -= min(unused, int(c.excess[at.name].Pods))
	if c.PerNode > 0 {
		others := used
		if !c.Inclusive() {
			others = int(at.owned.Pods)
		}
		unused = min(unused, max(0, c.PerNode-others))
	}
	return used + unused
}

// resize gives up to a number of slots of a node the claim's size, as many as there is room for beside the pods that
// use them, and for what they grow by beside nominated pods too.
func (d *draft) resize(at *draftNode, slots int) {
	d.setSlots(at, slots)
	for slots > 0 {
		growth := at.unused.Beyond(&at.unusedBefore)
		if !at.node.room.Negative(&at.unused) && !d.nodes.freeRoom(at.node).Negative(&growth) {
			return
		}
		slots--
		d.setSlots(at, slots)
	}
}

// placeMissing places what the zones lack of their quotas, and then what may be in any zone, first where most of the
// quota is missing.
func (d *draft) placeMissing() {
	c := d.claim
	for i := range c.quotas {
		q := &c.quotas[i]
		for c.slotsIn(q.zone) < q.slots && c.mayAddSlot() {
			if !d.placeSlot(q.zone) {
				break
			}
		}
	}
	for missing := c.wantedInAnyZone(); missing > 0; missing-- {
		byNeed := slices.SortedFunc(slices.Values(c.quotas), func(a, b quota) int {
			return cmp.Or(cmp.Compare(c.beyondQuota(a.zone), c.beyondQuota(b.zone)), strings.Compare(a.zone, b.zone))
		})
		if !slices.ContainsFunc(byNeed, func(q quota) bool { return d.placeSlot(q.zone) }) {
			return
		}
	}
}

// placeSlot puts one slot into a zone and reports whether there was room.
func (d *draft) placeSlot(zoneName string) bool {
	pk := d.pickers[zoneName]
	if pk == nil {
		pk = d.newPicker(zoneName)
		d.pickers[zoneName] = pk
	}
	n := pk.nextNode(d)
	if n == nil {
		return false
	}
	d.addSlot(n)
	return true
}

func (d *draft) addSlot(n *nodeRoom) {
	at := d.byName[n.name]
	if at == nil {
		at = d.addNode(n.name, holds.NodeStatus{})
	}
	d.setSlots(at, at.slots+1)
}

// giveUpSurplus gives up slots until there are no more than wanted: unused ones of zones that have more than their
// quota, then used ones there, then any. The pods that use them are ordinary pods from then on.
func (d *draft) giveUpSurplus() {
	c := d.claim
	surplus := c.slotsInAllZones() - c.total
	for i := len(c.quotas) - 1; i >= 0 && surplus > 0; i-- {
		zone := c.quotas[i].zone
		surplus -= d.giveUpUnused(zone, min(surplus, c.beyondQuota(zone)))
	}
	giveUp := func(at *draftNode, n int) {
		if m := min(n, at.slots, surplus); m > 0 {
			d.setSlots(at, at.slots-m)
			surplus -= m
		}
	}
	for _, at := range d.sortedByName() {
		giveUp(at, c.beyondQuota(at.zone))
	}
	for _, at := range d.sortedByName() {
		giveUp(at, at.slots)
	}
}

// giveUpUnused gives up at most n unused slots of a zone, those on the emptiest nodes first, and returns how many.
func (d *draft) giveUpUnused(zoneName string, n int) (givenUp int) {
	for _, at := range d.sortedByRoom(zoneName) {
		if m := min(n-givenUp, d.unusedSlots(at)); m > 0 {
			d.setSlots(at, at.slots-m)
			givenUp += m
		}
	}
	return givenUp
}

// followOwners moves unused slots to nodes of their zone on which pods of an inclusive claim run outside of slots: what
// these have is part of what the claim holds, and would else be held a second time.
func (d *draft) followOwners() {
	c := d.claim
	if !c.Inclusive() {
		return
	}
	var outside []*nodeRoom
	for _, n := range d.nodes.byName {
		if len(n.owned) > 0 && n.zone != nil && d.hasOwnersOutside(n) && c.quota(n.zone.name) != nil && c.Requirements.MetBy(n.object) {
			outside = append(outside, n)
		}
	}
	slices.SortFunc(outside, func(a, b *nodeRoom) int { return strings.Compare(a.name, b.name) })
	for _, n := range outside {
		for d.mayAdd(n) && d.hasOwnersOutside(n) && d.giveUpUnused(n.zone.name, 1) > 0 {
			d.addSlot(n)
		}
	}
}

// hasOwnersOutside reports whether pods of an inclusive claim run on a node outside of its slots.
func (d *draft) hasOwnersOutside(n *nodeRoom) bool {
	owned := n.ownedBy(d.claim.UID)
	return d.claim.Inclusive() && int(owned.Pods) > d.slotsOn(n)
}

// slotsOn is how many slots a node is to have.
func (d *draft) slotsOn(n *nodeRoom) int {
	if at := d.byName[n.name]; at != nil {
		return at.slots
	}
	return 0
}

// mayAdd reports whether a node may have one more slot, and has room for it.
func (d *draft) mayAdd(n *nodeRoom) bool {
	owned, slots := n.ownedBy(d.claim.UID), d.slotsOn(n)
	room := d.claim.roomForNextSlot(slots, &owned)
	return d.claim.withinPerNode(n, slots) && room.Exceeds(d.nodes.freeRoom(n)) == ""
}

// sortedByRoom returns the draft's nodes of a zone, the emptiest node first: the opposite order to that of filling.
func (d *draft) sortedByRoom(zoneName string) []*draftNode {
	var nodes []*draftNode
	for _, at := range d.byName {
		if at.zone == zoneName && at.node != nil {
			nodes = append(nodes, at)
		}
	}
	slot := &d.claim.Slot
	slices.SortFunc(nodes, func(a, b *draftNode) int {
		return -cmp.Or(cmp.Compare(a.node.room.Slots(slot), b.node.room.Slots(slot)),
			cmp.Compare(share(&a.node.room, slot), share(&b.node.room, slot)), strings.Compare(a.name, b.name))
	})
	return nodes
}
