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

// amounts is the state of a claim for amounts. Its nodes have nothing to do with each other, so each is looked at by itself, when
// it has changed.
type amounts struct {
	// stale are the nodes that Reconcile must look at.
	stale map[string]bool
	// drafted are the nodes that were looked at since they were last counted, and began the point at which that draft began.
	drafted map[string]bool
	began   uint64
	beganIn *rooms
	// lacks are the nodes on which a part is missing.
	lacks map[string]lack
	// complete is set once all nodes have been looked at.
	complete bool
}

// lack is a node on which a part is missing.
type lack struct {
	zone string
	// usable means that freed room of the node may be taken.
	usable bool
}

// markStale marks a node for Reconcile, or the claim, if it is one for slots.
func (c *claimState) markStale(nodeName string) {
	c.dirty = true
	if c.Claim.Amounts {
		c.stale[nodeName] = true
	}
}

// markDraftedStale marks the nodes of a draft that was given up.
func (c *claimState) markDraftedStale() {
	for name := range c.drafted {
		c.markStale(name)
	}
}

// missingOn is what a claim lacks on a node on which it has an amount.
func (c *claimState) missingOn(nodeName string, has *ledger.Resources) ledger.Resources {
	desired := c.Nodes[nodeName]
	missing := desired.Less(has)
	return missing.Positive()
}

// forAmountsLocked returns the claims for amounts.
func (p *Planner) forAmountsLocked() []*claimState {
	return slices.DeleteFunc(slices.Clone(p.queue), func(c *claimState) bool { return !c.Claim.Amounts })
}

// asDesiredLocked reports whether a claim needs nothing of a node, and has nothing to give up there.
func (p *Planner) asDesiredLocked(c *claimState, n *nodeRoom) bool {
	desired := c.Nodes[n.name]
	own := p.worker.held.Node(n.name).Of(c.claimUID())
	if own == nil {
		return desired.IsZero()
	}
	_, lacks := c.lacks[n.name]
	return !lacks && !n.tallyQueued && n.zone != nil && c.Fit.Takes(n.object) && own.Amount.Equal(&desired)
}

// reconcileAmountsLocked brings the stale nodes of a claim in line with its amounts, some at a time. It returns how many nodes it looked at.
func (p *Planner) reconcileAmountsLocked(c *claimState, result *Result) int {
	names := slices.Sorted(maps.Keys(c.stale))
	names = names[:min(nodesPerDraft, len(names))]
	for _, name := range names {
		delete(c.stale, name)
	}
	looks := 0
	if len(names) > 0 {
		looks = p.placeLocked(c, p.worker, 0, result, func(d *draft) {
			for _, name := range names {
				d.looks += looksPerNode
				d.decideAmount(name)
			}
		})
	}
	for _, name := range names {
		delete(c.excess, name)
	}
	c.dirty = c.dirty || len(c.stale) > 0
	c.complete = c.complete || len(c.stale) == 0
	return looks
}

// decideAmount decides how much of a node is held: what the claim wants, the pods there among it, as far as there is room.
func (d *draft) decideAmount(name string) {
	d.drafted[name] = true
	at := d.placeOf(name, d.planner.holds.StatusOn(d.claimUID(), name))
	switch {
	case !at.ready:
		d.setAmount(at, ledger.Resources{})
		return
	case at.node == nil:
		return // only the cycles see it yet
	case !d.Fit.Takes(at.node.object):
		d.setAmount(at, ledger.Resources{})
		return
	}
	keep := at.unused.Clone()
	if excess, full := d.excess[name]; full {
		keep.Add(&excess, -1)
		keep = keep.Positive()
	}
	d.setAmount(at, d.amountWith(name, &at.owned, &keep))
	room := d.rooms.freeRoom(at.node).Positive()
	more := d.wantedUnused(name, &at.owned)
	more = more.Less(&at.unused)
	more.Lower(&room)
	d.limitToFraction(at.node.zone, &more)
	more.Add(&at.unused, 1)
	d.setAmount(at, d.amountWith(name, &at.owned, &more))
}

// wantedUnused is what a claim wants to be unused of a node where its pods ask for owned.
func (c *claimState) wantedUnused(nodeName string, owned *ledger.Resources) ledger.Resources {
	desired := c.Nodes[nodeName]
	unused := desired.Less(owned)
	return unused.Positive()
}

// amountWith is the amount of a node of which as much is unused, or all that the claim wants.
func (c *claimState) amountWith(nodeName string, owned, unused *ledger.Resources) ledger.Resources {
	desired := c.Nodes[nodeName]
	amount, wanted := desired.Clone(), c.wantedUnused(nodeName, owned)
	amount.Lower(owned)
	wanted.Lower(unused)
	amount.Add(&wanted, 1)
	return amount.Positive()
}

// limitToFraction reduces what is to be added in a zone to what may be held there.
func (d *draft) limitToFraction(z *zone, more *ledger.Resources) {
	if d.planner.fraction >= 1 {
		return
	}
	added, all := d.added[z.name], more.Clone()
	for name := range all.Named() {
		if spare := max(0, d.planner.spareLocked(z, name)-added.Amount(name)); spare < more.Amount(name) {
			more.Put(name, spare)
			d.capped[z.name] = true
		}
	}
}

// takeFreed takes what the claim lacks on freed nodes.
func (d *draft) takeFreed() {
	for _, zoneName := range d.seeks {
		pk := &picker{upTo: d.rooms.freed}
		d.pickers[zoneName] = pk
		for n := range d.freedNodes(zoneName, pk) {
			if !d.planner.attainablePartLocked(d.claimState, d.rooms, n).IsZero() {
				d.decideAmount(n.name)
			}
		}
	}
}

// attainablePartLocked is the part of what a claim lacks on a node for which there is room.
func (p *Planner) attainablePartLocked(c *claimState, r *rooms, n *nodeRoom) *ledger.Resources {
	if lack, lacks := c.lacks[n.name]; !lacks || !lack.usable || !c.Fit.Takes(n.object) {
		return &ledger.Resources{}
	}
	owned, has := n.ownedBy(c.claimUID()), holds.Hold{Claim: &c.Claim}
	if own := n.held.Of(c.claimUID()); own != nil {
		has = *own
	}
	unused, room := has.Unused(n.ownedBy), r.freeRoom(n).Positive()
	more := c.wantedUnused(n.name, &owned)
	more = more.Less(&unused)
	more.Lower(&room)
	more = more.Positive()
	more.Add(&unused, 1)
	part := c.amountWith(n.name, &owned, &more)
	part = part.Less(&has.Amount)
	part = part.Positive()
	return &part
}

// countNodesLocked works out what is missing on the nodes of the last draft, and in which zones the claim seeks room.
func (p *Planner) countNodesLocked(c *claimState) {
	if len(c.drafted) == 0 {
		return
	}
	for name := range c.drafted {
		has := p.holds.StatusOn(c.claimUID(), name)
		n := p.nodeLocked(name)
		there := n != nil && !unready(n.object)
		if !there {
			has.Amount = ledger.Resources{}
		}
		if missing := c.missingOn(name, &has.Amount); missing.IsZero() {
			delete(c.lacks, name)
			delete(c.away, name)
			delete(c.full, name)
			continue
		}
		lack := lack{usable: there && c.Fit.Takes(n.object)}
		delete(c.away, name)
		if there {
			lack.zone = n.zone.name
		} else {
			c.away[name] = 1
		}
		if lack.usable && !slices.Contains(c.seeks, lack.zone) {
			c.searchOf(c.beganIn).looked[lack.zone] = c.began // up to then all nodes of the zone were looked at that lack something
		}
		c.lacks[name] = lack
	}
	clear(c.drafted)
	zones := map[string]bool{}
	for _, lack := range c.lacks {
		if lack.usable {
			zones[lack.zone] = true
		}
	}
	c.seeks = slices.AppendSeq(c.seeks[:0], maps.Keys(zones))
	slices.Sort(c.seeks)
}

// uncapNodesLocked marks the nodes of a claim on which the limit on what is held no longer keeps it from taking room.
func (p *Planner) uncapNodesLocked(c *claimState) {
	maps.DeleteFunc(c.capped, func(zone string, _ bool) bool { return !slices.Contains(c.seeks, zone) })
	if len(c.capped) == 0 {
		return
	}
	spare := map[string]bool{}
	for name, lack := range c.lacks {
		n := p.worker.nodes[name]
		if !c.capped[lack.zone] || n == nil || n.zone == nil {
			continue
		}
		for resource := range p.attainablePartLocked(c, p.worker, n).Named() {
			if p.spareLocked(n.zone, resource) > 0 {
				spare[lack.zone] = true
				c.markStale(name)
				break
			}
		}
	}
	for zone := range spare {
		delete(c.capped, zone)
	}
}
