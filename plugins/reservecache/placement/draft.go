package placement

import (
	"maps"
	"slices"
	"strings"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// draft is what one claim is to hold, node by node. It is made, filled and recorded under the planner's lock. While it
// lasts, the room of its nodes and the claim's counts are as if it had been recorded. If it is not recorded, the caller
// calls resetRoom, and has the claim counted again.
type draft struct {
	claim   *claimState
	planner *Planner
	// nodes is the set in which room is looked for: the ledger's or the cycles'.
	nodes *nodeSet
	// byName are the nodes of the draft. Of a claim of slots they are those on which it has slots, and those that it
	// gets; of a claim of amounts those that are looked at.
	byName map[string]*draftNode
	// pickers choose nodes for slots, by zone.
	pickers map[string]*picker
	// added is how much more is unused in each zone than before.
	added map[string]ledger.Resources
	// looks counts the nodes that were looked at; limit is the most per zone, 0 for no limit.
	looks, limit int
}

// draftNode is what the claim has on one node, and what it is to have there.
type draftNode struct {
	name, zone string
	// node is nil if the draft's set does not have the node. ready means that one of the two sets has it, and that it
	// is ready.
	node  *nodeRoom
	ready bool
	// before is what was held when the draft began, and unusedBefore what of it was unused; nothing if node is nil.
	before       holds.NodeStatus
	unusedBefore ledger.Resources
	// owned is the sum of the requests of the claim's pods there.
	owned ledger.Resources
	// amount is what is to be held there, slots its number of slots, and unused what the claim's pods leave of it.
	slots          int
	amount, unused ledger.Resources
}

// newDraft returns a draft that changes nothing yet. One of slots has all nodes of the claim, and counts anew what the
// claim has there.
func (p *Planner) newDraft(c *claimState, nodes *nodeSet, limit int) *draft {
	d := &draft{
		claim: c, planner: p, nodes: nodes, limit: limit,
		byName: map[string]*draftNode{}, pickers: map[string]*picker{}, added: map[string]ledger.Resources{},
	}
	if !c.HasSlots() {
		return d
	}
	clear(c.counts)
	held, _ := p.holds.Status(c.UID)
	for _, before := range held {
		d.addToCounts(d.addNode(before.Node, before), 1)
	}
	return d
}

// addNode adds a node with what the claim has there. The draft's own set is asked first, then the other.
func (d *draft) addNode(name string, before holds.NodeStatus) *draftNode {
	at := &draftNode{
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
		at.zone, at.ready, at.owned = n.zone.name, !ledger.Unready(n.object), n.ownedBy(d.claim.UID)
	}
	at.unusedBefore = at.unused
	d.byName[name] = at
	return at
}

// addToCounts adds a node's slots to the claim's counts, or takes them away. Slots on a node that is gone or not
// ready do not count.
func (d *draft) addToCounts(at *draftNode, sign int) {
	if !at.ready {
		return
	}
	n := d.claim.counts[at.zone]
	n.slots += sign * at.slots
	n.used += sign * (at.slots - d.unusedSlots(at))
	d.claim.counts[at.zone] = n
}

// unusedSlots is how many slots of a node no pod of the claim uses.
func (d *draft) unusedSlots(at *draftNode) int { return d.claim.UnusedSlots(at.slots, &at.owned) }

// setSlots gives a node another number of slots, of the claim's size.
func (d *draft) setSlots(at *draftNode, slots int) {
	d.addToCounts(at, -1)
	at.slots = slots
	d.addToCounts(at, 1)
	d.setAmount(at, d.claim.SlotsAmount(slots))
}

// setAmount has another amount held on a node.
func (d *draft) setAmount(at *draftNode, amount ledger.Resources) {
	unused := d.claim.Unused(&amount, &at.owned)
	more := unused.Minus(&at.unused)
	at.amount, at.unused = amount, unused
	if at.node == nil {
		return
	}
	at.node.room.Add(&more, -1)
	added := d.added[at.zone]
	added.Add(&more, 1)
	d.added[at.zone] = added
}

// sortedByName returns the nodes of the draft by name.
func (d *draft) sortedByName() []*draftNode {
	return slices.SortedFunc(maps.Values(d.byName), func(a, b *draftNode) int { return strings.Compare(a.name, b.name) })
}

// resetRoom gives the nodes of a draft the room that they have without it.
func (d *draft) resetRoom() {
	for _, at := range d.byName {
		if at.node != nil {
			at.node.resetRoom()
		}
	}
}

// gains are the nodes on which more is unused than before, with how much.
func (d *draft) gains() map[*draftNode]ledger.Resources {
	gains := map[*draftNode]ledger.Resources{}
	for _, at := range d.byName {
		if gain := at.unused.Beyond(&at.unusedBefore); at.node != nil && !gain.IsZero() {
			gains[at] = gain
		}
	}
	return gains
}

// changes returns the changes to record.
func (d *draft) changes() []holds.Change {
	var changes []holds.Change
	for _, at := range d.sortedByName() {
		ch := holds.Change{Node: at.name, Zone: at.zone, Add: at.amount.Minus(&at.before.Amount)}
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
