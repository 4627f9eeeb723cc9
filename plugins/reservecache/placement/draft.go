package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// draft has the intended slots, or amounts, of one claim. Until it is recorded, it changes the room of its nodes, and of the claim what
// countLocked counts again: counts, away and began.
type draft struct {
	*claimState
	planner *Planner
	rooms   *rooms
	// places are the nodes with slots, by name.
	places  map[string]*place
	pickers map[string]*picker
	// added is how much more unused each zone gets.
	added map[string]ledger.Resources
	// looks counts the nodes that were looked at; limit is the most per zone, 0 for no limit.
	looks, limit int
}

// place is what the claim has on one node.
type place struct {
	name, zone string
	// node is nil if the draft's rooms do not have it. ready means that there is such a node, and that it is ready.
	node  *nodeRoom
	ready bool
	was   holds.NodeStatus
	// owned is what the claim's pods there ask for.
	owned ledger.Resources
	// slots is how many the node should have, or amount what it should hold.
	slots  int
	amount ledger.Resources
	// unused is what is unused of that, and has been taken from the node's room; unusedBefore is what was unused before the draft.
	unused, unusedBefore ledger.Resources
}

func (p *Planner) newDraft(c *claimState, r *rooms, limit int) *draft {
	d := &draft{
		claimState: c, planner: p, rooms: r, places: map[string]*place{}, pickers: map[string]*picker{}, added: map[string]ledger.Resources{}, limit: limit,
	}
	if c.Claim.Amounts {
		c.began, c.beganIn = r.freed, r
		return d // its nodes are looked at one by one
	}
	nodes, _ := p.holds.Status(c.claimUID())
	clear(c.counts)
	for _, ns := range nodes {
		at := d.placeOf(ns.Node, ns)
		at.slots = ns.Slots()
		d.addToCounts(at, 1)
	}
	return d
}

// placeOf makes the place of a node of what the claim has there, without its slots.
func (d *draft) placeOf(name string, was holds.NodeStatus) *place {
	at := &place{name: name, zone: was.Zone, was: was, amount: was.Amount}
	if n := d.planner.nodeLocked(name); n != nil {
		at.zone, at.ready, at.owned = n.zone.name, !unready(n.object), n.ownedBy(d.claimUID())
	}
	if n := d.rooms.nodes[name]; n != nil && n.zone != nil {
		at.node, at.zone, at.ready, at.owned = n, n.zone.name, !unready(n.object), n.ownedBy(d.claimUID())
		if own := n.held.Of(d.claimUID()); own != nil {
			at.unused = own.Unused(n.ownedBy)
		}
	}
	at.unusedBefore = at.unused
	d.places[name] = at
	return at
}

// addToCounts adds a place's slots to the counts, or takes them away. Slots on a node that is gone or not ready do not count.
func (d *draft) addToCounts(at *place, sign int) {
	if !at.ready {
		return
	}
	n := d.counts[at.zone]
	n.slots += sign * at.slots
	n.used += sign * d.usedSlots(at)
	d.counts[at.zone] = n
}

// usedSlots is how many slots of a place pods use that the slots include.
func (d *draft) usedSlots(at *place) int { return at.slots - d.Claim.UnusedSlots(at.slots, &at.owned) }

// setSlots gives a place another number of slots, of the claim's size.
func (d *draft) setSlots(at *place, slots int) {
	d.addToCounts(at, -1)
	at.slots = slots
	d.addToCounts(at, 1)
	d.setAmount(at, d.Claim.Slots(slots))
}

// setAmount gives a place another amount.
func (d *draft) setAmount(at *place, amount ledger.Resources) {
	unused := d.Claim.Unused(&amount, &at.owned)
	more := unused.Less(&at.unused)
	at.amount, at.unused = amount, unused
	if at.node == nil {
		return
	}
	at.node.room.Add(&more, -1)
	added := d.added[at.zone]
	added.Add(&more, 1)
	d.added[at.zone] = added
}

// placesByName returns the places by name.
func (d *draft) placesByName() []*place {
	return slices.SortedFunc(maps.Values(d.places), func(a, b *place) int { return strings.Compare(a.name, b.name) })
}

// dropUseless drops useless slots: all on nodes that are gone or not ready, and in zones that the claim does not name; and those that are not used
// on nodes that are unfit or too full, or have too many. Slots of an old size get the new one if there is room.
func (d *draft) dropUseless() {
	for _, at := range d.placesByName() {
		unused := d.Claim.UnusedSlots(at.slots, &at.owned)
		used := at.slots - unused
		switch {
		case !at.ready:
			d.away[at.name] = max(1, at.slots)
			used, unused = 0, 0
		case d.quota(at.zone) == nil:
			used, unused = 0, 0
		case at.node == nil: // only the cycles see it yet
		case !d.Fit.Takes(at.node.object):
			unused = 0
		default:
			unused -= min(unused, int(d.excess[at.name].Pods))
			if d.PerNode > 0 {
				others := used
				if !d.Claim.Inclusive() {
					others = int(at.owned.Pods)
				}
				unused = min(unused, max(0, d.PerNode-others))
			}
		}
		if at.was.Resized && at.node != nil {
			d.resize(at, used+unused)
		} else if used+unused < at.slots {
			d.setSlots(at, used+unused)
		}
	}
}

// resize gives up to a number of slots of a place the claim's size, as many as there is room for beside the pods that use them.
func (d *draft) resize(at *place, slots int) {
	for d.setSlots(at, slots); slots > 0 && at.node.room.Negative(&at.unused); d.setSlots(at, slots) {
		slots--
	}
}

// placeMissing places what the zones lack, and then what may be in any zone, first where most of the quota is missing.
func (d *draft) placeMissing() {
	if d.Claim.Amounts {
		d.takeFreed()
		return
	}
	for i := range d.quotas {
		q := &d.quotas[i]
		for d.slotsIn(q.zone) < q.slots && d.mayAddSlot() && d.placeSlot(q.zone) {
		}
	}
	for anywhere := d.missingInAnyZone(); anywhere > 0; anywhere-- {
		least := slices.SortedFunc(slices.Values(d.quotas), func(a, b quota) int {
			return cmp.Or(cmp.Compare(d.slotsIn(a.zone)-a.slots, d.slotsIn(b.zone)-b.slots), strings.Compare(a.zone, b.zone))
		})
		if !slices.ContainsFunc(least, func(q quota) bool { return d.placeSlot(q.zone) }) {
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
	at := d.places[n.name]
	if at == nil {
		at = d.placeOf(n.name, holds.NodeStatus{})
	}
	d.setSlots(at, at.slots+1)
}

// dropSurplus drops surplus unused slots from the zones that have more than their quota, the emptiest nodes first, and then used ones until there
// are no more than wanted. The pods that use them are ordinary pods from then on.
func (d *draft) dropSurplus() {
	over := d.slotsInAllZones() - d.total
	for i := len(d.quotas) - 1; i >= 0 && over > 0; i-- {
		q := &d.quotas[i]
		over -= d.dropUnused(q.zone, min(over, d.slotsIn(q.zone)-q.slots))
	}
	places := d.placesByName()
	for _, anywhere := range []bool{false, true} {
		for _, at := range places {
			n := min(over, at.slots)
			if !anywhere {
				quota := 0
				if q := d.quota(at.zone); q != nil {
					quota = q.slots
				}
				n = min(n, d.slotsIn(at.zone)-quota)
			}
			if n > 0 {
				d.setSlots(at, at.slots-n)
				over -= n
			}
		}
	}
}

// dropUnused drops up to n unused slots of a zone, those on the emptiest nodes first, and returns how many it dropped.
func (d *draft) dropUnused(zoneName string, n int) (dropped int) {
	for _, at := range d.placesByRoom(zoneName) {
		if m := min(n-dropped, d.Claim.UnusedSlots(at.slots, &at.owned)); m > 0 {
			d.setSlots(at, at.slots-m)
			dropped += m
		}
	}
	return dropped
}

// followOwners moves unused slots to nodes of their zone on which pods of an inclusive claim run outside of slots: what these have is part of
// what the claim holds, and would else be held a second time.
func (d *draft) followOwners() {
	if !d.Claim.Inclusive() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(d.owners)) {
		n := d.rooms.nodes[name]
		if n == nil || n.zone == nil || d.quota(n.zone.name) == nil || !d.Fit.Takes(n.object) {
			continue
		}
		for d.mayAdd(n) && d.hasOwnersOutside(n) && d.counts[n.zone.name].slots > d.counts[n.zone.name].used {
			if d.dropUnused(n.zone.name, 1) == 0 {
				break
			}
			d.addSlot(n)
		}
	}
}

// hasOwnersOutside reports whether pods of an inclusive claim run on a node outside of its slots.
func (d *draft) hasOwnersOutside(n *nodeRoom) bool {
	owned := n.ownedBy(d.claimUID())
	return d.Claim.Inclusive() && int(owned.Pods) > d.slotsOn(n)
}

// slotsOn is how many slots the node should have.
func (d *draft) slotsOn(n *nodeRoom) int {
	if at := d.places[n.name]; at != nil {
		return at.slots
	}
	return 0
}

// mayAdd reports whether a node may have one more slot, and has room for it.
func (d *draft) mayAdd(n *nodeRoom) bool {
	owned := n.ownedBy(d.claimUID())
	takes := d.slotTakes(d.slotsOn(n), &owned)
	return d.mayHaveAnother(n, d.slotsOn(n)) && takes.Exceeds(d.rooms.freeRoom(n)) == ""
}

// placesByRoom returns the places of a zone, the emptiest node first: the opposite order to that of filling.
func (d *draft) placesByRoom(zoneName string) []*place {
	var places []*place
	for _, at := range d.places {
		if at.zone == zoneName && at.node != nil {
			places = append(places, at)
		}
	}
	slot := &d.Claim.Slot
	slices.SortFunc(places, func(a, b *place) int {
		return -cmp.Or(cmp.Compare(a.node.room.Slots(slot), b.node.room.Slots(slot)),
			cmp.Compare(share(&a.node.room, slot), share(&b.node.room, slot)), strings.Compare(a.name, b.name))
	})
	return places
}

// unusedGain is how much more unused a place gets; negative where it loses some.
func (at *place) unusedGain() ledger.Resources { return at.unused.Less(&at.unusedBefore) }

// losesUnused reports whether a place gets less unused of any resource.
func (at *place) losesUnused() bool {
	gain := at.unusedGain()
	positive := gain.Positive()
	return !gain.Equal(&positive)
}

// changes returns the changes to record.
func (d *draft) changes() []holds.Change {
	var changes []holds.Change
	for _, at := range d.placesByName() {
		ch := holds.Change{Node: at.name, Zone: at.zone, Add: at.amount.Less(&at.was.Amount)}
		if !d.Claim.Amounts {
			ch.Add = d.Claim.Slots(at.slots - at.was.Slots())
		}
		if moved := at.was.Node != "" && (at.was.Zone != at.zone || at.was.Resized); moved || !ch.Add.IsZero() {
			changes = append(changes, ch)
		}
	}
	return changes
}
