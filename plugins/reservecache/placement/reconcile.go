package placement

// looksPerSlice bounds the looks that Reconcile takes at nodes while others wait for the lock: one demand's search of a large
// cluster.
const looksPerSlice = 5000

// Reconcile brings the slots of the demands that something has happened to where they are to be, by what the ledger knows, the
// oldest first: it drops those that are not worth anything, places what is missing, and drops what is too much, in one step for
// each demand. Slots that are where they may be stay.
//
// It works for a slice of time, and says whether there is more to do. trails reports whether the view of a node is known to be
// behind the API server: slots that have no room there are then left alone, until it is not.
func (p *Planner) Reconcile(view View, trails func(node string) bool) Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	var result Result
	p.noteLocked()
	p.board.update(view, between)
	p.askAgainLocked(view, between)
	p.inspectLocked(trails, &result)
	p.retallyLocked()
	p.uncapLocked()
	looks := 0
	for w := p.firstDirtyLocked(); w != nil && looks < looksPerSlice; w = p.firstDirtyLocked() {
		w.dirty = false
		looks += 1 + p.reconcileLocked(w, &result)
	}
	// What one gave up is another's to take, and what became free.
	offered := p.board.freed
	for i := 0; i < len(p.queue) && p.seeking > 0 && p.offered != offered; i++ {
		if looks >= looksPerSlice {
			result.More = true
			return result
		}
		if w := p.queue[i]; !w.dirty {
			looks += p.collectLocked(w, 0, &result)
		}
	}
	if result.More = p.anyDirtyLocked() || p.offered != offered && p.board.freed != offered; !result.More {
		p.offered = offered
	}
	return result
}

func (p *Planner) reconcileLocked(w *wanted, result *Result) int {
	p.countLocked(w)
	looks := p.placeLocked(w, 0, result, func(d *draft) {
		d.apportion(p.fits[d.Fit.key].zones)
		d.trim()
		d.fill()
		d.level()
	})
	clear(w.excess)
	return looks
}

func (p *Planner) firstDirtyLocked() *wanted {
	for _, w := range p.queue {
		if w.dirty {
			return w
		}
	}
	return nil
}

func (p *Planner) anyDirtyLocked() bool { return p.firstDirtyLocked() != nil }

// inspectLocked looks at the nodes that changed: demands that hold something on one that may take no slots any longer, is gone
// or is too full are looked at.
func (p *Planner) inspectLocked(trails func(string) bool, result *Result) {
	for _, n := range p.board.changed {
		n.inspect = false
		held := p.board.held.Node(n.name)
		delete(p.full, n)
		if held == nil {
			continue
		}
		here := p.board.here(n)
		if here && n.tooFull() {
			p.full[n] = struct{}{}
		}
		if !here || n.listed {
			for i := range held.Holds {
				if w := p.claims[held.Holds[i].Claim.UID]; w != nil {
					w.dirty = true
				}
			}
		}
	}
	clear(p.board.changed)
	p.board.changed = p.board.changed[:0]
	for n := range p.full {
		if trails != nil && trails(n.name) {
			continue
		}
		delete(p.full, n)
		for _, e := range n.held.Excess(&n.allocatable, &n.requested, p.board.present(n)) {
			if w := p.claims[e.Claim]; w != nil {
				w.dirty, w.excess[n.name], w.full[n.name] = true, e.Slots, true
				result.Full = append(result.Full, Full{Claim: e.Claim, Node: n.name, Slots: e.Slots})
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

// uncapLocked has the demands looked at that may place slots again where the bound on what is held kept them from it.
func (p *Planner) uncapLocked() {
	if p.fraction >= 1 {
		return
	}
	for _, w := range p.queue {
		for name := range w.capped {
			if z := p.board.zones[name]; z != nil && !p.cappedLocked(w, z, 0) {
				w.dirty, w.looked[name] = true, 0
			}
		}
	}
}
