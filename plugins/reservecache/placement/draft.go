package placement

import (
	"maps"
	"slices"
	"strings"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// draft is what one claim is to hold. A draft of slots begins with what the claim holds; either is changed place by place. Until it is
// recorded, the room of its nodes and the claim's counts are as if it were.
type draft struct {
	claim   *claimState
	planner *Planner
	nodes   *nodeSet
	// places are the nodes on which the claim has something or is to have it. A draft of amounts only has those that it
	// changes.
	places map[string]*place
	// pickers choose nodes for slots, by zone.
	pickers map[string]*picker
	// added is how much more unused each zone gets.
	added map[string]ledger.Resources
	// looks counts the nodes that were looked at; limit is the most per zone, 0 for no limit.
	looks, limit int
}

// place is what the claim has on one node.
type place struct {
	name, zone string
	// node is nil if the draft's nodes do not have it. ready means that ledgerNodes or cycleNodes have it, and that it is ready.
	node  *nodeRoom
	ready bool
	// before is what was held when the draft began, and unusedBefore what of it was unused.
	before       holds.NodeStatus
	unusedBefore ledger.Resources
	// owned is what the claim's pods there ask for.
	owned ledger.Resources
	// slots is how many the node is to have, and amount what it is to hold. unused is what is unused of that; the node's
	// room is what is left beside it.
	slots          int
	amount, unused ledger.Resources
}

func (p *Planner) newDraft(c *claimState, nodes *nodeSet, limit int) *draft {
	d := &draft{
		claim: c, planner: p, nodes: nodes, limit: limit,
		places: map[string]*place{}, pickers: map[string]*picker{}, added: map[string]ledger.Resources{},
	}
	if !c.HasSlots() {
		return d
	}
	clear(c.counts)
	held, _ := p.holds.Status(c.UID)
	for _, before := range held {
		d.count(d.addPlace(before.Node, before), 1)
	}
	return d
}

// addPlace adds a node with what the claim has there. The draft's nodes know best how the node is; only if they do not have it, the other
// set is asked.
func (d *draft) addPlace(name string, before holds.NodeStatus) *place {
	at := &place{
		name: name, zone: before.Zone, node: d.nodes.present(name),
		before: before, slots: before.Slots(), amount: before.Amount,
	}
	n := d.planner.nodeLocked(name)
	if at.node != nil {
		n = at.node
		if own := n.held.Of(d.claim.UID); own != nil {
			at.unused = own.Unused(n.ownedBy)
		}
	}
	if n != nil {
		at.zone, at.ready, at.owned = n.zone.name, !unready(n.object), n.ownedBy(d.claim.UID)
	}
	at.unusedBefore = at.unused
	d.places[name] = at
	return at
}

// count adds a place's slots to the claim's counts, or takes them away. Slots on a node that is gone or not ready do
// not count.
func (d *draft) count(at *place, sign int) {
	if !at.ready {
		return
	}
	n := d.claim.counts[at.zone]
	n.slots += sign * at.slots
	n.used += sign * (at.slots - d.unusedSlots(at))
	d.claim.counts[at.zone] = n
}

// unusedSlots is how many slots of a place no pod of the claim uses.
func (d *draft) unusedSlots(at *place) int { return d.claim.UnusedSlots(at.slots, &at.owned) }

// setSlots gives a place another number of slots, of the claim's size.
func (d *draft) setSlots(at *place, slots int) {
	d.count(at, -1)
	at.slots = slots
	d.count(at, 1)
	d.setAmount(at, d.claim.SlotsAmount(slots))
}

// setAmount gives a place another amount.
func (d *draft) setAmount(at *place, amount ledger.Resources) {
	unused := d.claim.Unused(&amount, &at.owned)
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

// resetRoom gives the nodes of a draft the room that they have without it.
func (d *draft) resetRoom() {
	for _, at := range d.places {
		if at.node != nil {
			at.node.resetRoom()
		}
	}
}

// gains are the places at which more is unused than before, with how much.
func (d *draft) gains() map[*place]ledger.Resources {
	gains := map[*place]ledger.Resources{}
	for _, at := range d.places {
		if gain := at.unused.Beyond(&at.unusedBefore); at.node != nil && !gain.IsZero() {
			gains[at] = gain
		}
	}
	return gains
}

// changes returns the changes to record.
func (d *draft) changes() []holds.Change {
	var changes []holds.Change
	for _, at := range d.placesByName() {
		ch := holds.Change{Node: at.name, Zone: at.zone, Add: at.amount.Less(&at.before.Amount)}
		if d.claim.HasSlots() {
			ch.Add = d.claim.SlotsAmount(at.slots - at.before.Slots())
		}
		moved := at.before.Node != "" && (at.before.Zone != at.zone || at.before.Resized)
		if moved || !ch.Add.IsZero() {
			changes = append(changes, ch)
		}
	}
	return changes
}
