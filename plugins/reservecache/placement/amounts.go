package placement

import (
	"maps"
	"slices"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

const (
	// nodesPerDraft limits how many nodes one draft of amounts has: it is recorded as a whole, or not at all.
	nodesPerDraft = 256
	// looksPerNode is how many looks of a search it takes to bring the amount of a node in line.
	looksPerNode = 8
)

// reconcileAmountsLocked brings nodes in line with the claim's amounts, some at a time. It returns how many nodes it
// looked at, and whether the draft was recorded.
func (p *Planner) reconcileAmountsLocked(c *claimState, result *Result) (looks int, recorded bool) {
	names := slices.Sorted(maps.Keys(c.nodesToReconcile))
	names = names[:min(nodesPerDraft, len(names))]
	for _, name := range names {
		delete(c.nodesToReconcile, name)
	}
	recorded = true
	if len(names) > 0 {
		looks, recorded = p.placeLocked(c, p.ledgerNodes, 0, result, func(d *draft) {
			for _, name := range names {
				d.looks += looksPerNode
				d.decideAmount(name)
			}
		})
	}
	for _, name := range names {
		delete(c.excess, name)
	}
	c.needsReconcile = c.needsReconcile || len(c.nodesToReconcile) > 0
	c.reconciled = c.reconciled || len(c.nodesToReconcile) == 0
	return looks, recorded
}

// decideAmount decides how much of a node is held: what the claim wants, the pods there among it, as far as there is
// room.
func (d *draft) decideAmount(name string) {
	c, at := d.claim, d.addNode(name, d.planner.holds.StatusOn(d.claim.UID, name))
	if at.ready && at.node == nil {
		return // only the cycles see it yet
	}
	if !at.ready || !c.Requirements.MetBy(at.node.object) {
		d.setAmount(at, ledger.Resources{})
		return
	}
	excess := c.excess[name]
	keep := at.unused.Beyond(&excess)
	d.setAmount(at, c.amountOn(name, &at.owned, &keep))
	more := c.moreUnused(name, &at.owned, &at.unused, d.nodes.freeRoom(at.node))
	d.limitToFraction(at.node.zone, &more)
	more.Add(&at.unused, 1)
	d.setAmount(at, c.amountOn(name, &at.owned, &more))
}

// amountOn is the amount of a node of which that much is unused, or all that the claim wants.
func (c *claimState) amountOn(nodeName string, owned, unused *ledger.Resources) ledger.Resources {
	desired := c.Nodes[nodeName]
	amount, wanted := desired.Clone(), desired.Beyond(owned)
	amount.SetMin(owned)
	wanted.SetMin(unused)
	amount.Add(&wanted, 1)
	return amount
}

// moreUnused is how much more than is unused now the claim wants to be unused of a node, as far as there is room.
func (c *claimState) moreUnused(nodeName string, owned, unused, room *ledger.Resources) ledger.Resources {
	desired, free := c.Nodes[nodeName], room.Positive()
	wanted := desired.Beyond(owned)
	more := wanted.Beyond(unused)
	more.SetMin(&free)
	return more
}

// attainableLocked is how much more a claim can hold of a node.
func (p *Planner) attainableLocked(c *claimState, nodes *nodeSet, n *nodeRoom) ledger.Resources {
	if _, lacks := c.lacks[n.name]; !lacks || !c.Requirements.MetBy(n.object) {
		return ledger.Resources{}
	}
	owned, has := n.ownedBy(c.UID), holds.Hold{Claim: &c.Claim}
	if own := n.held.Of(c.UID); own != nil {
		has = *own
	}
	unused := has.Unused(n.ownedBy)
	more := c.moreUnused(n.name, &owned, &unused, nodes.freeRoom(n))
	more.Add(&unused, 1)
	amount := c.amountOn(n.name, &owned, &more)
	return amount.Beyond(&has.Amount)
}

// takeFreed takes what the claim lacks on freed nodes.
func (d *draft) takeFreed() {
	for _, zoneName := range d.claim.zonesSought(d.nodes) {
		pk := &picker{upTo: d.nodes.freeings}
		d.pickers[zoneName] = pk
		for n := range d.freedNodes(zoneName, pk) {
			if attainable := d.planner.attainableLocked(d.claim, d.nodes, n); !attainable.IsZero() {
				d.decideAmount(n.name)
			}
		}
	}
}

// missingOn is what a claim lacks on a node on which it has an amount.
func (c *claimState) missingOn(nodeName string, has *ledger.Resources) ledger.Resources {
	desired := c.Nodes[nodeName]
	return desired.Beyond(has)
}

// noteLacksLocked records on which nodes of a draft something is missing.
func (p *Planner) noteLacksLocked(d *draft) {
	c := d.claim
	for name := range d.byName {
		var has ledger.Resources
		var found lack
		if n := p.nodeLocked(name); n != nil && !ledger.Unready(n.object) {
			has, found = p.holds.StatusOn(c.UID, name).Amount, lack{zone: n.zone.name, usable: c.Requirements.MetBy(n.object)}
		}
		c.lacks[name] = found
		if missing := c.missingOn(name, &has); missing.IsZero() {
			delete(c.lacks, name)
			delete(c.wereTooFull, name)
		}
	}
}

// asDesiredLocked reports whether a claim needs nothing of a node of the ledger, and has nothing to give up there.
func (p *Planner) asDesiredLocked(c *claimState, n *nodeRoom) bool {
	desired := c.Nodes[n.name]
	own := p.ledgerNodes.held.Node(n.name).Of(c.UID)
	if own == nil {
		return desired.IsZero()
	}
	return !n.objectChanged && n.zone != nil && c.Requirements.MetBy(n.object) && own.Amount.Equal(&desired)
}
