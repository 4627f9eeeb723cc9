package placement

import (
	"slices"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// tries is how often a draft is repeated when its room has gone to nominated pods or others.
const tries = 3

// placeLocked makes drafts of a claim until one is recorded. work fills the draft. The lock is released
// while it asks for nominated pods. It returns how many nodes were looked at.
func (p *Planner) placeLocked(c *claimState, r *rooms, limit int, result *Result, work func(*draft)) int {
	looks, recorded := 0, false
	for range tries {
		d := p.newDraft(c, r, limit)
		work(d)
		looks += d.looks
		recorded = p.recordLocked(d, result)
		if recorded {
			break
		}
		if p.claims[c.claimUID()] != c {
			return looks // changed or gone meanwhile
		}
	}
	if !recorded {
		c.dirty = true // the nominations that are known now are in no other draft's way
		c.markDraftedStale()
	}
	p.countLocked(c)
	p.touched[c.claimUID()] = struct{}{}
	if !c.unfilled() {
		clear(c.away)
		clear(c.full)
		clear(c.capped)
	}
	return looks
}

// recordLocked records a draft. It returns false if the room is for nominated pods, if a pod has been placed there since the nodes were read,
// or if the claim was replaced; the nodes are then as if the draft had not been made.
func (p *Planner) recordLocked(d *draft, result *Result) bool {
	var more []string
	gains := map[string]ledger.Resources{}
	for _, at := range d.places {
		if gain := at.unusedGain(); at.node != nil && gain.Exceeds(&ledger.Resources{}) != "" {
			more = append(more, at.name)
			gains[at.name] = gain
		}
	}
	if len(more) > 0 && p.nominatedOn != nil {
		p.askLocked(more)
		taken := func(name string) bool {
			gain, n := gains[name], d.places[name].node
			return d.rooms.freeRoom(n).Negative(&gain)
		}
		if p.claims[d.claimUID()] != d.claimState || slices.ContainsFunc(more, taken) {
			d.resetRoom()
			return false
		}
	}
	changes := d.changes()
	if !p.changeLocked(d, more, changes) {
		d.resetRoom()
		p.updateLocked(d.rooms, d.rooms.read, true)
		return false
	}
	for name, pk := range d.pickers {
		if pk.searched() {
			d.searchOf(d.rooms).looked[name] = pk.upTo
		}
	}
	if len(changes) == 0 {
		return true
	}
	if !d.Claim.Amounts {
		placed, more := 0, 0
		for _, at := range d.places {
			placed += max(0, at.slots-at.was.Slots())
			more += at.slots - at.was.Slots()
		}
		d.forgetAway(placed)
		d.taken = max(0, d.taken-max(0, more)) // they stand in for those that pods took
	}
	d.rooms.updateHeldRoom()
	for _, at := range d.places {
		if at.node != nil && (at.losesUnused() || at.was.Resized) {
			d.rooms.offerAgain(at.node)
		}
	}
	if !slices.Contains(result.Changed, d.claimUID()) {
		result.Changed = append(result.Changed, d.claimUID())
	}
	return true
}

// changeLocked makes the changes of a draft, unless one of the nodes on which it holds more has changed since it was read: a pod may have taken
// the room. It returns false then.
func (p *Planner) changeLocked(d *draft, more []string, changes []holds.Change) bool {
	p.recording.Lock()
	defer p.recording.Unlock()
	if slices.ContainsFunc(more, func(name string) bool { return !d.rooms.upToDate(d.places[name].node) }) {
		return false
	}
	if len(changes) > 0 {
		p.holds.Change(d.claimUID(), changes)
	}
	return true
}

// resetRoom gives the nodes of a draft the room that they have without it.
func (d *draft) resetRoom() {
	for _, at := range d.places {
		if at.node != nil {
			at.node.resetRoom()
		}
	}
}

// askLocked asks which pods are nominated to nodes. It releases the lock meanwhile: the queue that is asked may wait for those that wait
// for this lock.
func (p *Planner) askLocked(nodes []string) {
	answers := make([]ledger.Resources, len(nodes))
	p.mu.Unlock()
	for i, name := range nodes {
		answers[i] = p.nominatedOn(name)
	}
	p.mu.Lock()
	for i, name := range nodes {
		p.nominateLocked(name, answers[i])
	}
}

// nominateLocked records what the pods ask for that are nominated to a node.
func (p *Planner) nominateLocked(name string, requests ledger.Resources) {
	before := p.nominated[name]
	p.nominated[name] = requests
	if requests.IsZero() {
		delete(p.nominated, name)
	}
	if before.Exceeds(&requests) != "" {
		p.freeLocked(name)
	}
}

// askAgainLocked asks again about nodes to which pods were nominated, because the end of a nomination does not change its node. It asks about
// any limit of them, or all if limit is 0.
func (p *Planner) askAgainLocked(limit int) {
	nodes := make([]string, 0, len(p.nominated))
	for name := range p.nominated {
		nodes = append(nodes, name)
		if len(nodes) == limit {
			break
		}
	}
	if len(nodes) > 0 {
		p.askLocked(nodes)
	}
}
