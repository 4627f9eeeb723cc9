package placement

import "zonewise.dev/plugins/reservecache/ledger"

const (
	// looksPerCycle limits how many nodes a scheduling cycle looks at: about a twentieth of a millisecond.
	looksPerCycle = 2000
	// looksPerClaim limits the nodes that are looked at for one claim in one zone, the latest freed first. The rest is left
	// to Reconcile.
	looksPerClaim = 64
	// asksPerCycle limits the nodes of which a cycle asks the scheduling queue, under its lock, whether pods are still nominated to them. After
	// the loss of a zone there may be hundreds.
	asksPerCycle = 16
)

// Collect lets the claims that lack slots take freed room that a scheduling cycle sees, the oldest claim first and before the
// cycle's pod. Call it at the start of each cycle with the cycle's nodes, but not in a pod-group cycle, whose snapshot changes
// without its generations.
//
// It waits for the end of a Reconcile, which may be about to take the room that the cycle's pod would find, but not if no claim lacks
// slots. Otherwise it compares the generation of each node, and looks at the nodes that were
// freed since the last cycle.
func (p *Planner) Collect(view View) Result {
	if p.idle.Load() && !p.holds.Lowered() {
		return Result{}
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.noteIdleLocked()
	var result Result
	p.noteLocked()
	if p.seeking == 0 && !p.board.cycleHasMore {
		return result
	}
	p.board.update(view, cycle)
	gone := len(p.board.gone) > 0 // with slots of which the ledger did not know, perhaps
	p.askAgainLocked(asksPerCycle)
	if p.offered == p.board.freed || p.seeking == 0 {
		return Result{More: gone}
	}
	offered := p.board.freed
	most, few := p.board.mostSince(p.offered, looksPerClaim)
	looks := 0
	for i := 0; i < len(p.queue); i++ {
		w := p.queue[i]
		if len(w.seeks) == 0 {
			continue
		}
		if few && !w.Claim.Inclusive() && w.Claim.Slot.Exceeds(&most) != "" {
			w.passed.extend(p.offered, offered)
			continue
		}
		if looks >= looksPerCycle {
			result.More = true
			break
		}
		looks += p.collectLocked(w, looksPerClaim, &result)
	}
	if !result.More {
		p.offered = offered
	}
	result.More = result.More || p.anyDirtyLocked() || gone
	return result
}

// noteIdleLocked records whether there is something to do for cycles.
func (p *Planner) noteIdleLocked() {
	p.idle.Store(p.seeking == 0 && !p.board.cycleHasMore && !p.anyDirtyLocked())
}

// collectLocked lets one claim take room that was freed since its last look, in the zones in which it seeks slots. It looks at
// no more than limit nodes of a zone, unless limit is 0. It returns how many nodes it looked at.
func (p *Planner) collectLocked(w *claim, limit int, result *Result) int {
	looks, found := 1, false
	for _, name := range w.seeks {
		z := p.board.zones[name]
		if z == nil || z.newest == nil || z.newest.freed <= w.lookedAt(name) {
			w.looked[name] = p.board.freed
			continue
		}
		if !w.Claim.Inclusive() && p.cappedLocked(w, z, &ledger.Resources{}, &w.Claim.Slot) {
			continue
		}
		upTo, at, offered := p.board.freed, 0, false
		for n := z.newest; n != nil && n.freed > w.lookedAt(name) && !offered; n = n.older {
			if at++; at > limit && limit > 0 {
				w.dirty, upTo = true, 0
				break
			}
			if !p.board.inView(n) {
				upTo = 0 // one that the other view has is not searched
				continue
			}
			offered = p.offers(w, n)
		}
		looks += at
		if found = found || offered; !offered && upTo > 0 {
			w.looked[name] = upTo
		}
	}
	if !found {
		return looks
	}
	return looks + p.placeLocked(w, limit, result, func(d *draft) {
		d.fill()
		d.level()
	})
}

// offers reports whether a node has room for a slot of a claim, or for a part of what it lacks there.
func (p *Planner) offers(w *claim, n *node) bool {
	if w.Claim.Amounts {
		return !p.partLocked(w, n).IsZero()
	}
	if !p.fits[w.Fit.key].takes(n) {
		return false
	}
	slots := 0
	if own := n.held.Of(w.uid()); own != nil {
		slots = int(own.Amount.Pods)
	}
	owned := n.ownedBy(w.uid())
	takes := w.slotTakes(slots, &owned)
	return w.mayHave(n.name, slots) && takes.Exceeds(n.freeRoom()) == ""
}
