package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// draft has the intended slots, or amounts, of one claim. Until it is committed, only the room of the nodes reflects it.
type draft struct {
	*claim
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
	node  *node
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

func (p *Planner) newDraft(w *claim, in *rooms, limit int) *draft {
	d := &draft{
		claim: w, planner: p, rooms: in, places: map[string]*place{}, pickers: map[string]*picker{}, added: map[string]ledger.Resources{}, limit: limit,
	}
	if w.Claim.Amounts {
		w.began, w.beganIn = in.freed, in
		return d // its nodes are looked at one by one
	}
	nodes, _ := p.holds.Status(w.uid())
	clear(w.counts)
	for _, ns := range nodes {
		pl := d.placeOf(ns.Node, ns)
		pl.slots = ns.Slots()
		d.count(pl, 1)
	}
	return d
}

// placeOf makes the place of a node of what the claim has there, without its slots.
func (d *draft) placeOf(name string, was holds.NodeStatus) *place {
	pl := &place{name: name, zone: was.Zone, was: was, amount: was.Amount}
	if n := d.planner.nodeLocked(name); n != nil {
		pl.zone, pl.ready, pl.owned = n.zone.name, !unready(n.object), n.ownedBy(d.uid())
	}
	if n := d.rooms.nodes[name]; n != nil && n.zone != nil {
		pl.node, pl.zone, pl.ready, pl.owned = n, n.zone.name, !unready(n.object), n.ownedBy(d.uid())
		if own := n.held.Of(d.uid()); own != nil {
			pl.unused = own.Unused(n.ownedBy)
		}
	}
	pl.unusedBefore = pl.unused
	d.places[name] = pl
	return pl
}

// count adds a place's slots to the counts, or takes them away. Slots on a node that is gone or not ready do not count.
func (d *draft) count(pl *place, sign int) {
	if !pl.ready {
		return
	}
	n := d.counts[pl.zone]
	n.slots += sign * pl.slots
	n.used += sign * d.used(pl)
	d.counts[pl.zone] = n
}

// used is how many slots of a place pods use that the slots include.
func (d *draft) used(pl *place) int { return pl.slots - d.Claim.UnusedSlots(pl.slots, &pl.owned) }

// set gives a place another number of slots, of the claim's size.
func (d *draft) set(pl *place, slots int) {
	d.count(pl, -1)
	pl.slots = slots
	d.count(pl, 1)
	d.hold(pl, d.Claim.Slots(slots))
}

// hold gives a place another amount.
func (d *draft) hold(pl *place, amount ledger.Resources) {
	unused := d.Claim.Unused(&amount, &pl.owned)
	more := unused.Less(&pl.unused)
	pl.amount, pl.unused = amount, unused
	if pl.node == nil {
		return
	}
	pl.node.room.Add(&more, -1)
	added := d.added[pl.zone]
	added.Add(&more, 1)
	d.added[pl.zone] = added
}

// sorted returns the places by name.
func (d *draft) sorted() []*place {
	return slices.SortedFunc(maps.Values(d.places), func(a, b *place) int { return strings.Compare(a.name, b.name) })
}

// trim drops useless slots: all on nodes that are gone or not ready, and in zones that the claim does not name; and those that are not used
// on nodes that are unfit or too full, or have too many. Slots of an old size get the new one if there is room.
func (d *draft) trim() {
	for _, pl := range d.sorted() {
		unused := d.Claim.UnusedSlots(pl.slots, &pl.owned)
		used := pl.slots - unused
		switch {
		case !pl.ready:
			d.away[pl.name] = max(1, pl.slots)
			used, unused = 0, 0
		case d.quota(pl.zone) == nil:
			used, unused = 0, 0
		case pl.node == nil: // only the cycles see it yet
		case d.Fit.Of(pl.node.object) != "":
			unused = 0
		default:
			unused -= min(unused, int(d.excess[pl.name].Pods))
			if d.PerNode > 0 {
				others := used
				if !d.Claim.Inclusive() {
					others = int(pl.owned.Pods)
				}
				unused = min(unused, max(0, d.PerNode-others))
			}
		}
		if pl.was.Resized && pl.node != nil {
			d.resize(pl, used+unused)
		} else if used+unused < pl.slots {
			d.set(pl, used+unused)
		}
	}
}

// resize gives up to a number of slots of a place the claim's size, as many as there is room for beside the pods that use them.
func (d *draft) resize(pl *place, slots int) {
	for d.set(pl, slots); slots > 0 && pl.node.room.Negative(&pl.unused); d.set(pl, slots) {
		slots--
	}
}

// fill places what the zones lack, and then what may be in any zone, first where the smallest part of the quota is filled.
func (d *draft) fill() {
	if d.Claim.Amounts {
		d.fillFreed()
		return
	}
	for i := range d.quotas {
		q := &d.quotas[i]
		for d.counted(q.zone) < q.slots && d.mayAddSlot() && d.place(q.zone) {
		}
	}
	for anywhere := d.missingInAnyZone(); anywhere > 0; anywhere-- {
		least := slices.SortedFunc(slices.Values(d.quotas), func(a, b quota) int {
			return cmp.Or(cmp.Compare(d.counted(a.zone)-a.slots, d.counted(b.zone)-b.slots), strings.Compare(a.zone, b.zone))
		})
		if !slices.ContainsFunc(least, func(q quota) bool { return d.place(q.zone) }) {
			return
		}
	}
}

// place puts one slot into a zone and reports whether there was room.
func (d *draft) place(zoneName string) bool {
	pk := d.pickers[zoneName]
	if pk == nil {
		pk = d.newPicker(zoneName)
		d.pickers[zoneName] = pk
	}
	n := pk.next(d)
	if n == nil {
		return false
	}
	d.addSlot(n)
	return true
}

func (d *draft) addSlot(n *node) {
	pl := d.places[n.name]
	if pl == nil {
		pl = d.placeOf(n.name, holds.NodeStatus{})
	}
	d.set(pl, pl.slots+1)
}

// level drops surplus unused slots from the zones that have more than their quota, the emptiest nodes first, and then used ones until there
// are no more than wanted. The pods that use them are ordinary pods from then on.
func (d *draft) level() {
	over := d.sum() - d.total
	for i := len(d.quotas) - 1; i >= 0 && over > 0; i-- {
		q := &d.quotas[i]
		over -= d.dropUnused(q.zone, min(over, d.counted(q.zone)-q.slots))
	}
	places := d.sorted()
	for _, anywhere := range []bool{false, true} {
		for _, pl := range places {
			n := min(over, pl.slots)
			if !anywhere {
				quota := 0
				if q := d.quota(pl.zone); q != nil {
					quota = q.slots
				}
				n = min(n, d.counted(pl.zone)-quota)
			}
			if n > 0 {
				d.set(pl, pl.slots-n)
				over -= n
			}
		}
	}
}

// dropUnused drops up to n unused slots of a zone, those on the emptiest nodes first, and returns how many it dropped.
func (d *draft) dropUnused(zoneName string, n int) (dropped int) {
	for _, pl := range d.emptiest(zoneName) {
		if m := min(n-dropped, d.Claim.UnusedSlots(pl.slots, &pl.owned)); m > 0 {
			d.set(pl, pl.slots-m)
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
func (d *draft) hasOwnersOutside(n *node) bool {
	owned := n.ownedBy(d.uid())
	return d.Claim.Inclusive() && int(owned.Pods) > d.slotsOn(n)
}

// slotsOn is how many slots the node should have.
func (d *draft) slotsOn(n *node) int {
	if pl := d.places[n.name]; pl != nil {
		return pl.slots
	}
	return 0
}

// mayAdd reports whether a node may have one more slot, and has room for it.
func (d *draft) mayAdd(n *node) bool {
	owned := n.ownedBy(d.uid())
	takes := d.slotTakes(d.slotsOn(n), &owned)
	return d.mayHave(n, d.slotsOn(n)) && takes.Exceeds(d.rooms.freeRoom(n)) == ""
}

// emptiest returns the places of a zone in the opposite order to that of filling.
func (d *draft) emptiest(zoneName string) []*place {
	var places []*place
	for _, pl := range d.places {
		if pl.zone == zoneName && pl.node != nil {
			places = append(places, pl)
		}
	}
	slot := &d.Claim.Slot
	slices.SortFunc(places, func(a, b *place) int {
		return -cmp.Or(cmp.Compare(a.node.room.Slots(slot), b.node.room.Slots(slot)),
			cmp.Compare(share(&a.node.room, slot), share(&b.node.room, slot)), strings.Compare(a.name, b.name))
	})
	return places
}

// gain is how much more unused a place gets; negative where it loses some.
func (pl *place) gain() ledger.Resources { return pl.unused.Less(&pl.unusedBefore) }

// loses reports whether a place gets less unused of a resource.
func (pl *place) loses() bool {
	gain := pl.gain()
	positive := gain.Positive()
	return !gain.Equal(&positive)
}

// changes returns the changes to record.
func (d *draft) changes() []holds.Change {
	var changes []holds.Change
	for _, pl := range d.sorted() {
		ch := holds.Change{Node: pl.name, Zone: pl.zone, Add: pl.amount.Less(&pl.was.Amount)}
		if !d.Claim.Amounts {
			ch.Add = d.Claim.Slots(pl.slots - pl.was.Slots())
		}
		if moved := pl.was.Node != "" && (pl.was.Zone != pl.zone || pl.was.Resized); moved || !ch.Add.IsZero() {
			changes = append(changes, ch)
		}
	}
	return changes
}
