package placement

import (
	"slices"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// tries is how often a draft is repeated when its room has gone to nominated pods or others.
const tries = 3

// placeLocked makes drafts of a claim, which work fills, until one is recorded. It returns how many nodes were looked
// at, and whether one was recorded.
func (p *Planner) placeLocked(
	c *claimState, nodes *nodeSet, limit int, result *Result, work func(*draft),
) (looks int, recorded bool) {
	var d *draft
	for try := 0; try < tries && !recorded; try++ {
		d = p.newDraft(c, nodes, limit)
		work(d)
		looks += d.looks
		recorded = p.recordLocked(d, result)
	}
	if !recorded {
		c.needsReconcile = true // nodes change faster than it is done
		for name := range d.byName {
			c.requestReconcile(name)
		}
	}
	if !c.HasSlots() {
		p.noteLacksLocked(d)
	}
	p.countLocked(c)
	p.touched[c.UID] = struct{}{}
	if !c.unfilled() {
		clear(c.away)
		clear(c.wereTooFull)
		clear(c.capped)
	}
	return looks, recorded
}

// recordLocked records a draft. It returns false if the room is for nominated pods, or if a pod has been placed there
// since the nodes were read; the nodes are then as if the draft had not been made.
func (p *Planner) recordLocked(d *draft, result *Result) bool {
	gains, changes := d.gains(), d.changes()
	if !p.leavesNominatedLocked(d, gains) {
		d.resetRoom()
		return false
	}
	if !p.changeLocked(d, gains, changes) {
		d.resetRoom()
		p.updateLocked(d.nodes, d.nodes.read, true)
		return false
	}
	for zone, pk := range d.pickers {
		if pk.searched() {
			d.claim.searchOf(d.nodes).looked[zone] = pk.upTo
		}
	}
	if len(changes) == 0 {
		return true
	}
	d.settlePlaced()
	d.nodes.updateHeldRoom()
	for _, at := range d.byName {
		if lost := at.unusedBefore.Beyond(&at.unused); at.node != nil && (!lost.IsZero() || at.before.Resized) {
			d.planner.freeLocked(at.name) // for both: it may have had too many slots, rather than too little room
		}
	}
	if !slices.Contains(result.Changed, d.claim.UID) {
		result.Changed = append(result.Changed, d.claim.UID)
	}
	return true
}

// leavesNominatedLocked reports whether a draft leaves the pods their room that are nominated to nodes on which it
// holds more.
func (p *Planner) leavesNominatedLocked(d *draft, gains map[*draftNode]ledger.Resources) bool {
	if len(gains) == 0 || p.nominatedOn == nil {
		return true
	}
	names := make([]string, 0, len(gains))
	for at := range gains {
		names = append(names, at.name)
	}
	p.queryNominationsLocked(names)
	for at, gain := range gains {
		if d.nodes.freeRoom(at.node).Negative(&gain) {
			return false
		}
	}
	return true
}

// changeLocked makes the changes of a draft, unless one of the nodes on which it holds more has changed since it was
// read: a pod may have taken the room. It returns false then.
func (p *Planner) changeLocked(d *draft, gains map[*draftNode]ledger.Resources, changes []holds.Change) bool {
	p.admission.Lock()
	defer p.admission.Unlock()
	for at := range gains {
		if !d.nodes.upToDate(at.node) {
			return false
		}
	}
	if len(changes) > 0 {
		p.holds.Change(d.claim.UID, changes)
	}
	return true
}

// settlePlaced has the slots that were placed stand in for those that are away, or that pods took.
func (d *draft) settlePlaced() {
	if !d.claim.HasSlots() {
		return
	}
	placed, more := 0, 0
	for _, at := range d.byName {
		placed += max(0, at.slots-at.before.Slots())
		more += at.slots - at.before.Slots()
	}
	d.claim.forgetAway(placed)
	d.claim.taken = max(0, d.claim.taken-max(0, more))
}
