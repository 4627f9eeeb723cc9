package placement

import (
	"maps"

	"zonewise.dev/plugins/reservecache/ledger"
)

const (
	// looksPerCycle limits how many nodes a scheduling cycle looks at: about a twentieth of a millisecond.
	looksPerCycle = 2000
	// looksPerClaim limits the nodes that are looked at for one claim in one zone, the latest freed first. The rest
	// is left to Reconcile.
	looksPerClaim = 64
	// queriesPerCycle limits the nodes of which a cycle asks the scheduling queue, under its lock, whether pods are
	// still nominated to them. After the loss of a zone there may be hundreds.
	queriesPerCycle = 16
)

// Collect lets the claims that lack something take freed room that a scheduling cycle sees, the oldest claim first
// and before the cycle's pod. Call it at the start of each cycle with the cycle's nodes, but not in a pod-group
// cycle, whose snapshot changes without its generations. Its cost is that of the nodes that were freed since the last
// cycle.
//
// It waits for the end of a Reconcile, which may be about to take the room that the cycle's pod would find, unless
// there is nothing to collect for.
func (p *Planner) Collect(view View) Result {
	if p.nothingToCollect.Load() && !p.holds.Lowered() {
		return Result{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.noteNothingToCollectLocked()
	var result Result
	requested := p.countTakenLocked()
	if !p.anySeekerLocked() && !p.cyclesSeeMoreNodes {
		return result
	}
	nodes := p.cycleNodes
	requested = p.updateLocked(nodes, func() View { return view }, false) || requested
	p.refreshNominationsLocked(queriesPerCycle)
	if nodes.offeredUpTo == nodes.freeings || !p.anySeekerLocked() {
		return Result{More: requested}
	}
	upTo, looks := nodes.freeings, 0
	for _, c := range p.interestedLocked(nodes) {
		if looks >= looksPerCycle {
			result.More = true
			break
		}
		looks += p.collectLocked(c, nodes, looksPerClaim, &result)
	}
	if !result.More {
		nodes.offeredUpTo = upTo
	}
	// Whoever else has a claim reconciled calls Reconcile.
	result.More = result.More || requested || looks > 0 && p.anyToReconcileLocked()
	return result
}

// Knows reports whether Collect has looked at a node that has that generation. It is true while there is nothing to
// collect for.
func (p *Planner) Knows(nodeName string, generation int64) bool {
	if p.nothingToCollect.Load() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.cycleNodes.byName[nodeName]
	return n != nil && n.generation == generation
}

// noteNothingToCollectLocked records whether there is something to do for cycles.
func (p *Planner) noteNothingToCollectLocked() {
	p.nothingToCollect.Store(!p.anySeekerLocked() && !p.cyclesSeeMoreNodes && !p.anyToReconcileLocked())
}

// collectLocked lets one claim take room that was freed since its last look, in the zones in which it seeks more. It
// looks at no more than limit nodes of a zone, unless limit is 0. It returns how many nodes it looked at.
func (p *Planner) collectLocked(c *claimState, nodes *nodeSet, limit int, result *Result) int {
	looks, found, search := 1, map[string]bool{}, c.searchOf(nodes)
	for _, zone := range c.zonesSought(nodes) {
		z, since := nodes.zones[zone], search.lookedUpTo(zone)
		if z == nil || z.newest == nil || z.newest.freedAt <= since {
			search.looked[zone] = nodes.freeings
			continue
		}
		if !c.Inclusive() && p.cappedLocked(c, z, &ledger.Resources{}, &c.Slot) {
			continue
		}
		looked, hasRoom := 0, false
		for n := z.newest; n != nil && n.freedAt > since && !hasRoom; n = n.older {
			if looked++; looked > limit && limit > 0 {
				c.needsReconcile = true // the rest is Reconcile's
				break
			}
			hasRoom = p.hasRoomForLocked(c, nodes, n)
		}
		looks += looked
		if hasRoom {
			found[zone] = true
		} else {
			search.looked[zone] = nodes.freeings
		}
	}
	if len(found) == 0 {
		return looks
	}
	more, _ := p.placeLocked(c, nodes, limit, result, func(d *draft) {
		if !c.HasSlots() {
			d.takeFreed()
			return
		}
		d.reopen(found)
		d.placeMissing()
		d.giveUpSurplus()
	})
	return looks + more
}

// reopen gives zones their quotas that have a node with room for a slot, and had none that may have slots when Reconcile
// last looked.
func (d *draft) reopen(zones map[string]bool) {
	c, reopened := d.claim, false
	counts := maps.Clone(d.planner.nodeCounts[c.Requirements.Key()].zones)
	for zone := range zones {
		if q := c.quota(zone); q == nil || q.lost {
			counts[zone], reopened = &zoneCount{selected: 1, usable: 1}, true
		}
	}
	if reopened {
		c.apportion(counts)
		c.needsReconcile = true // by the nodes of the ledger, which may not have it
	}
}

// hasRoomForLocked reports whether a node has room for a slot of a claim, or for a part of what it lacks there.
func (p *Planner) hasRoomForLocked(c *claimState, nodes *nodeSet, n *nodeRoom) bool {
	if !c.HasSlots() {
		attainable := p.attainableLocked(c, nodes, n)
		return !attainable.IsZero()
	}
	slots := 0
	if own := n.held.Of(c.UID); own != nil {
		slots = int(own.Amount.Pods)
	}
	owned := n.ownedBy(c.UID)
	room := c.roomForNextSlot(slots, &owned)
	return c.withinPerNode(n, slots) && room.Exceeds(nodes.freeRoom(n)) == "" && c.Requirements.MetBy(n.object)
}
