package placement

import "slices"

// countLocked counts again what a claim holds, and finds out in which zones it seeks more.
func (p *Planner) countLocked(c *claimState) {
	sought, soughtNew, soughtRoom := slices.Clone(c.seeks), c.seeksNew, c.seeksRoom()
	if c.HasSlots() {
		p.countSlotsLocked(c)
		c.taken = max(0, min(c.taken, c.total-c.slotsInAllZones()))
	}
	c.updateSeeks()
	p.seekers.changed = p.seekers.changed || c.seeksRoom() != soughtRoom
	if c.seeksRoom() && c.HasSlots() && (c.seeksNew != soughtNew || !slices.Equal(sought, c.seeks)) {
		p.ledgerNodes.offeredUpTo, p.cycleNodes.offeredUpTo = 0, 0 // look at all nodes again
	}
}

func (p *Planner) countSlotsLocked(c *claimState) {
	clear(c.counts)
	p.holds.Counts(c.UID, func(zone string, slots int) { c.counts[zone] = count{slots: slots} })
	if !c.Inclusive() {
		return
	}
	nodes, _ := p.holds.Status(c.UID)
	for i := range nodes {
		if at := p.nodeLocked(nodes[i].Node); at != nil {
			owned := at.ownedBy(c.UID)
			n := c.counts[nodes[i].Zone]
			n.used += nodes[i].Slots() - c.UnusedSlots(nodes[i].Slots(), &owned)
			c.counts[nodes[i].Zone] = n
		}
	}
}

// countTakenLocked records how many slots pods took since it was last called. It reports whether there were any, so
// that Reconcile has something to do.
func (p *Planner) countTakenLocked() (requested bool) {
	for uid, slots := range p.holds.TakeLowered() {
		if c := p.claims[uid]; c != nil {
			c.needsReconcile = true
			c.taken += slots
			p.touched[uid] = struct{}{}
			p.countLocked(c)
			requested = true
		}
	}
	return requested
}
