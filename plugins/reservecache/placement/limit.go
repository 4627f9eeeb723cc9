package placement

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/reservecache/ledger"
)

// maxHeldFraction limits what is held unused in a zone, of each resource, to a part of what the zone's nodes offer. A
// slot that would exceed it is not placed; of an amount, a part is held.

// spareLocked is how much more of a resource may be held unused in a zone; negative if too much is.
func (p *Planner) spareLocked(z *zone, name v1.ResourceName) int64 {
	return int64(p.fraction*float64(z.allocatable.Amount(name))) - z.unused.Amount(name)
}

// cappedLocked reports whether a slot more in a zone, beside what a draft has added there, would exceed the limit, and
// records that.
func (p *Planner) cappedLocked(c *claimState, z *zone, added, slot *ledger.Resources) bool {
	delete(c.capped, z.name)
	if p.fraction >= 1 {
		return false
	}
	for name := range slot.Named() {
		if p.spareLocked(z, name)-added.Amount(name) < slot.Amount(name) {
			c.capped[z.name] = true
			return true
		}
	}
	return false
}

// limitToFraction reduces what is to be added in a zone to what the limit allows.
func (d *draft) limitToFraction(z *zone, more *ledger.Resources) {
	if d.planner.fraction >= 1 {
		return
	}
	added, all := d.added[z.name], more.Clone()
	for name := range all.Named() {
		if spare := max(0, d.planner.spareLocked(z, name)-added.Amount(name)); spare < more.Amount(name) {
			more.Put(name, spare)
			d.claim.capped[z.name] = true
		}
	}
}

// uncapLocked marks the claims that the limit no longer keeps from what they lack.
func (p *Planner) uncapLocked() {
	if p.fraction >= 1 {
		return
	}
	for _, c := range p.byAge {
		if !c.HasSlots() {
			p.uncapAmountsLocked(c)
			continue
		}
		for name := range c.capped {
			if z := p.ledgerNodes.zones[name]; z != nil && !p.cappedLocked(c, z, &ledger.Resources{}, &c.Slot) {
				c.needsReconcile = true
				for _, search := range c.searches {
					search.looked[name] = 0
				}
			}
		}
	}
}

// uncapAmountsLocked marks the nodes of a claim of amounts on which it may hold more.
func (p *Planner) uncapAmountsLocked(c *claimState) {
	maps.DeleteFunc(c.capped, func(zone string, _ bool) bool { return !slices.Contains(c.seeks, zone) })
	if len(c.capped) == 0 {
		return
	}
	uncapped := map[string]bool{}
	for name, lack := range c.lacks {
		n := p.ledgerNodes.present(name)
		if !c.capped[lack.zone] || n == nil {
			continue
		}
		attainable := p.attainableLocked(c, p.ledgerNodes, n)
		for resource := range attainable.Named() {
			if p.spareLocked(n.zone, resource) > 0 {
				uncapped[lack.zone] = true
				c.requestReconcile(name)
				break
			}
		}
	}
	maps.DeleteFunc(c.capped, func(zone string, _ bool) bool { return uncapped[zone] })
}
