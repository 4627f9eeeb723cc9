package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// draft has the intended slots of one claim. Until it is committed, only the room of the nodes reflects it.
type draft struct {
	*claim
	planner *Planner
	board   *board
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
	// node is nil if the board does not have it.
	node *node
	lost bool
	was  holds.NodeStatus
	// slots is how many the node should have, used how many of them consumers use; settle is how many slots are given up
	// together with their consumers.
	slots, used, settle int
	// unused is the unused amount that the node should have, of a claim for amounts.
	unused ledger.Resources
}

func (p *Planner) newDraft(w *claim, limit int) *draft {
	d := &draft{
		claim: w, planner: p, board: p.board, places: map[string]*place{}, pickers: map[string]*picker{}, added: map[string]ledger.Resources{}, limit: limit,
	}
	if w.Claim.Amounts {
		w.began = p.board.freed
		return d // its nodes are looked at one by one
	}
	status, _ := p.holds.Status(w.uid())
	clear(w.counts)
	for _, ns := range status.Nodes {
		d.set(d.placeOf(ns.Node, ns), ns.Slots, ns.Used)
	}
	clear(d.added)
	return d
}

// placeOf makes the place of a node, without its slots, of what the claim has there.
func (d *draft) placeOf(name string, was holds.NodeStatus) *place {
	pl := &place{name: name, zone: was.Zone, lost: true, was: was}
	if n := d.board.nodes[name]; n != nil && d.board.inAnyView(n) {
		pl.node, pl.zone, pl.lost = n, n.zone.name, unready(n.object)
	}
	d.places[name] = pl
	return pl
}

// set changes the numbers of a place and the counts.
func (d *draft) set(pl *place, slots, used int) {
	if !pl.lost {
		n := d.counts[pl.zone]
		n.Slots += slots - pl.slots
		n.Used += used - pl.used
		d.counts[pl.zone] = n
		d.add(pl.zone, &d.Claim.Slot, int64((slots-used)-(pl.slots-pl.used)))
	}
	pl.slots, pl.used = slots, used
}

// add counts what a zone gets.
func (d *draft) add(zone string, amount *ledger.Resources, times int64) {
	added := d.added[zone]
	added.Add(amount, times)
	d.added[zone] = added
}

// drop takes unused slots away from a place.
func (d *draft) drop(pl *place, n int) {
	if n <= 0 {
		return
	}
	if pl.node != nil {
		pl.node.room.Add(&d.Claim.Slot, int64(n))
	}
	d.set(pl, pl.slots-n, pl.used)
}

// demoteAt makes consumers of n slots of a place ordinary pods.
func (d *draft) demoteAt(pl *place, n int) {
	pl.settle += n
	d.set(pl, pl.slots-n, pl.used-n)
}

// sorted returns the places by name.
func (d *draft) sorted() []*place {
	return slices.SortedFunc(maps.Values(d.places), func(a, b *place) int { return strings.Compare(a.name, b.name) })
}

// trim drops useless unused slots: on nodes that are gone, unfit or too full, beyond the limit of a node, and in zones that the
// claim does not name. Slots of an old size get the new one if there is room.
func (d *draft) trim() {
	for _, pl := range d.sorted() {
		unused := pl.slots - pl.used
		keep := unused
		switch {
		case pl.lost:
			d.away[pl.name] = true
			keep = 0
		case d.quota(pl.zone) == nil:
			keep = 0
			d.demoteAt(pl, pl.used)
		case d.Fit.Of(pl.node.object) != "":
			keep = 0
		default:
			keep -= min(keep, int(d.excess[pl.name].Pods))
			if d.PerNode > 0 {
				keep = min(keep, max(0, d.PerNode-max(0, d.owners[pl.name]-len(pl.was.Consumers))-pl.used))
			}
		}
		if pl.was.Resized && pl.node != nil {
			// The room of the old size is free for the new one.
			room := pl.node.room.Clone()
			if own := pl.node.held.Of(d.uid()); own != nil {
				old := own.Unused(d.board.present(pl.node))
				room.Add(&old, 1)
			}
			keep = int(min(int64(keep), room.Slots(&d.Claim.Slot)))
			room.Add(&d.Claim.Slot, -int64(keep))
			pl.node.room = room
			d.set(pl, pl.used+keep, pl.used)
			continue
		}
		d.drop(pl, unused-keep)
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
	pl := d.places[n.name]
	if pl == nil {
		pl = &place{name: n.name, zone: n.zone.name, node: n}
		d.places[n.name] = pl
	}
	n.room.Add(&d.Claim.Slot, -1)
	d.set(pl, pl.slots+1, pl.used)
	return true
}

// level drops surplus unused slots from the zones that have more than their quota, the emptiest nodes first. Then it makes
// consumers ordinary pods until there are no more slots than wanted.
func (d *draft) level() {
	counted, _ := d.sum()
	over := counted - d.total
	for i := len(d.quotas) - 1; i >= 0 && over > 0; i-- {
		q := &d.quotas[i]
		for _, pl := range d.emptiest(q.zone) {
			n := min(over, d.counted(q.zone)-q.slots, pl.slots-pl.used)
			if n > 0 {
				d.drop(pl, n)
				over -= n
			}
		}
	}
	_, slots := d.sum()
	d.settle(slots - d.total)
}

// settle makes consumers of n slots ordinary pods and drops their slots, first in the zones that have more slots than their
// quota.
func (d *draft) settle(n int) {
	if n <= 0 {
		return
	}
	places := d.sorted()
	for _, anywhere := range []bool{false, true} {
		for _, pl := range places {
			m := min(n, pl.used)
			if !anywhere {
				quota := 0
				if q := d.quota(pl.zone); q != nil {
					quota = q.slots
				}
				m = min(m, d.counts[pl.zone].Slots-quota)
			}
			if m > 0 && !pl.lost {
				d.demoteAt(pl, m)
				n -= m
			}
		}
	}
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
func (d *draft) gain(pl *place) ledger.Resources {
	if d.Claim.Amounts {
		gain := pl.unused.Less(&pl.was.Amount)
		gain.Add(&pl.was.Took, 1)
		return gain
	}
	return d.Claim.Slots((pl.slots - pl.used) - (pl.was.Slots - pl.was.Used))
}

// loses reports whether a place gets less unused of a resource.
func (d *draft) loses(pl *place) bool {
	gain := d.gain(pl)
	positive := gain.Positive()
	return !gain.Equal(&positive)
}

// changes returns the changes to record.
func (d *draft) changes() []holds.Change {
	var changes []holds.Change
	for _, pl := range d.sorted() {
		ch := holds.Change{Node: pl.name, Zone: pl.zone, Lost: pl.lost, Settle: pl.settle, Add: d.gain(pl)}
		moved := pl.was.Node != "" && (pl.was.Zone != pl.zone || pl.was.Lost != pl.lost || pl.was.Resized)
		if !ch.Add.IsZero() || ch.Settle != 0 || moved {
			changes = append(changes, ch)
		}
	}
	return changes
}
