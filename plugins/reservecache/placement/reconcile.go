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
	p.noteLocked()
	in := p.worker
	p.updateLocked(in, read, false)
	p.askAgainLocked(0)
	p.inspectLocked(trails, &result)
	p.retallyLocked()
	p.uncapLocked()
	looks := 0
	for w := p.firstDirtyLocked(); w != nil && looks < looksPerSlice; w = p.firstDirtyLocked() {
		w.dirty = false
		looks += 1 + p.reconcileLocked(w, &result)
	}
	// Others may take what one gave up, and what became free.
	offered := in.freed
	for i := 0; i < len(p.queue) && p.seeking > 0 && in.offered != offered; i++ {
		if looks >= looksPerSlice {
			result.More = true
			return result
		}
		if w := p.queue[i]; !w.dirty {
			looks += p.collectLocked(w, in, 0, &result)
		}
	}
	if result.More = p.anyDirtyLocked() || in.offered != offered && in.freed != offered; !result.More {
		in.offered = offered
	}
	return result
}

func (p *Planner) reconcileLocked(w *claim, result *Result) int {
	if w.Claim.Amounts {
		return p.measureLocked(w, result)
	}
	p.countLocked(w)
	looks := p.placeLocked(w, p.worker, 0, result, func(d *draft) {
		d.apportion(p.fits[d.Fit.key].zones)
		d.trim()
		d.fill()
		d.level()
		d.followOwners()
	})
	clear(w.excess)
	return looks
}

func (p *Planner) firstDirtyLocked() *claim {
	for _, w := range p.queue {
		if w.dirty {
			return w
		}
	}
	return nil
}

func (p *Planner) anyDirtyLocked() bool { return p.firstDirtyLocked() != nil }

// inspectLocked looks at the changed nodes, and marks the claims that hold slots on a node that is gone, unfit or too full.
func (p *Planner) inspectLocked(trails func(string) bool, result *Result) {
	amounts := p.forAmountsLocked()
	for _, n := range p.worker.notes.changed {
		n.inspect = false
		if seen := p.cycles.nodes[n.name]; seen != nil && seen.zone == nil && n.zone != nil {
			p.cycles.readAgain(seen) // the ledger had removed it
		}
		for _, w := range amounts {
			if !p.asDesiredLocked(w, n) {
				w.look(n.name)
			}
		}
		if n.listed { // slots follow owners on a node that is ready again
			for uid := range n.owned {
				if w := p.claims[uid]; w != nil {
					w.look(n.name)
				}
			}
		}
		held := p.worker.held.Node(n.name)
		delete(p.full, n)
		if held == nil {
			continue
		}
		if n.zone != nil && n.tooFull() {
			p.full[n] = struct{}{}
		}
		if n.zone == nil || n.listed {
			for i := range held.Holds {
				if w := p.claims[held.Holds[i].Claim.UID]; w != nil {
					w.look(n.name)
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
			if w := p.claims[e.Claim]; w != nil {
				w.look(n.name)
				w.excess[n.name], w.full[n.name] = e.Amount, true
				result.Full = append(result.Full, Full{Claim: e.Claim, Node: n.name, Amount: e.Amount})
			}
		}
	}
}

// tooFull reports whether unused slots of a node have no room beside its pods.
func (n *node) tooFull() bool {
	room := n.allocatable.Clone()
	room.Add(&n.requested, -1)
	return n.unused.Exceeds(&room) != ""
}

// uncapLocked marks the claims that the limit on what is held no longer keeps from placing slots.
func (p *Planner) uncapLocked() {
	if p.fraction >= 1 {
		return
	}
	for _, w := range p.queue {
		if w.Claim.Amounts {
			p.uncapNodesLocked(w)
			continue
		}
		for name := range w.capped {
			if z := p.worker.zones[name]; z != nil && !p.cappedLocked(w, z, &ledger.Resources{}, &w.Claim.Slot) {
				w.dirty = true
				for _, search := range w.searches {
					search.looked[name] = 0
				}
			}
		}
	}
}
