package placement

import "zonewise.dev/plugins/reservecache/ledger"

// looksPerSlice limits how many nodes Reconcile looks at while others wait for the lock: one claim's search of a large
// cluster.
const looksPerSlice = 5000

// Reconcile repairs the slots of changed claims by the nodes of the ledger, the oldest claim first: it drops useless slots,
// places missing ones, and drops surplus ones, in one step for each claim. Slots that may stay where they are stay.
//
// It works for a slice of time, and says whether there is more to do. read returns the nodes as they are when it is called. It is called again
// if one has changed that was about to get slots: a pod may have taken the room.
// trails reports whether the view of a node is known to be behind the API server: slots that have no room there are then left alone,
// until it is not.
func (p *Planner) Reconcile(read func() View, trails func(node string) bool) Result {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.noteIdleLocked()
	var result Result
	p.countTakenLocked()
	r := p.worker
	p.updateLocked(r, read, false)
	p.askAgainLocked(0)
	p.inspectLocked(trails, &result)
	p.retallyLocked()
	p.uncapLocked()
	looks := 0
	for c := p.firstDirtyLocked(); c != nil && looks < looksPerSlice; c = p.firstDirtyLocked() {
		c.dirty = false
		looks += 1 + p.reconcileLocked(c, &result)
	}
	// Others may take what one gave up, and what became free.
	offered := r.freed
	for i := 0; i < len(p.queue) && p.seeking > 0 && r.offered != offered; i++ {
		if looks >= looksPerSlice {
			result.More = true
			return result
		}
		if c := p.queue[i]; !c.dirty {
			looks += p.collectLocked(c, r, 0, &result)
		}
	}
	result.More = p.anyDirtyLocked() || r.offered != offered && r.freed != offered
	if !result.More {
		r.offered = offered
	}
	return result
}

func (p *Planner) reconcileLocked(c *claimState, result *Result) int {
	if c.Claim.Amounts {
		return p.reconcileAmountsLocked(c, result)
	}
	p.countLocked(c)
	looks := p.placeLocked(c, p.worker, 0, result, func(d *draft) {
		d.apportion(p.fits[d.Fit.key].zones)
		d.dropUseless()
		d.placeMissing()
		d.dropSurplus()
		d.followOwners()
	})
	clear(c.excess)
	return looks
}

func (p *Planner) firstDirtyLocked() *claimState {
	for _, c := range p.queue {
		if c.dirty {
			return c
		}
	}
	return nil
}

func (p *Planner) anyDirtyLocked() bool { return p.firstDirtyLocked() != nil }

// inspectLocked looks at the changed nodes, and marks the claims that hold slots on a node that is gone, unfit or too full.
func (p *Planner) inspectLocked(trails func(string) bool, result *Result) {
	amounts := p.forAmountsLocked()
	for _, n := range p.worker.notes.changed {
		n.reconcileQueued = false
		if seen := p.cycles.nodes[n.name]; seen != nil && seen.zone == nil && n.zone != nil {
			p.cycles.readAgain(seen) // the ledger had removed it
		}
		for _, c := range amounts {
			if !p.asDesiredLocked(c, n) {
				c.markStale(n.name)
			}
		}
		if n.tallyQueued { // slots follow owners on a node that is ready again
			for uid := range n.owned {
				if c := p.claims[uid]; c != nil {
					c.markStale(n.name)
				}
			}
		}
		held := p.worker.held.Node(n.name)
		delete(p.full, n)
		if held == nil {
			continue
		}
		if n.zone != nil && n.isTooFull() {
			p.full[n] = struct{}{}
		}
		if n.zone == nil || n.tallyQueued {
			for i := range held.Holds {
				if c := p.claims[held.Holds[i].Claim.UID]; c != nil {
					c.markStale(n.name)
				}
			}
		}
	}
	clear(p.worker.notes.changed)
	p.worker.notes.changed = p.worker.notes.changed[:0]
	for n := range p.full {
		if trails != nil && trails(n.name) {
			continue
		}
		delete(p.full, n)
		for _, e := range n.held.Excess(&n.allocatable, &n.requested, n.ownedBy) {
			if c := p.claims[e.Claim]; c != nil {
				c.markStale(n.name)
				c.excess[n.name], c.full[n.name] = e.Amount, true
				result.Full = append(result.Full, Full{Claim: e.Claim, Node: n.name, Amount: e.Amount})
			}
		}
	}
}

// isTooFull reports whether unused slots of a node have no room beside its pods.
func (n *nodeRoom) isTooFull() bool {
	room := n.allocatable.Clone()
	room.Add(&n.requested, -1)
	return n.unused.Exceeds(&room) != ""
}

// uncapLocked marks the claims that the limit on what is held no longer keeps from placing slots.
func (p *Planner) uncapLocked() {
	if p.fraction >= 1 {
		return
	}
	for _, c := range p.queue {
		if c.Claim.Amounts {
			p.uncapNodesLocked(c)
			continue
		}
		for name := range c.capped {
			if z := p.worker.zones[name]; z != nil && !p.cappedLocked(c, z, &ledger.Resources{}, &c.Claim.Slot) {
				c.dirty = true
				for _, search := range c.searches {
					search.looked[name] = 0
				}
			}
		}
	}
}
