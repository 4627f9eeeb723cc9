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
// slots. Otherwise it looks at the nodes that were freed since the last cycle.
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
	if p.seeking == 0 && !p.cyclesHaveMore {
		return result
	}
	in := p.cycles
	p.updateLocked(in, func() View { return view }, false)
	p.askAgainLocked(asksPerCycle)
	if in.offered == in.freed || p.seeking == 0 {
		return Result{More: p.anyDirtyLocked()}
	}
	offered := in.freed
	most, few := in.mostSince(in.offered, looksPerClaim)
	looks := 0
	for i := 0; i < len(p.queue); i++ {
		w := p.queue[i]
		if len(w.seeks) == 0 {
			continue
		}
		if few && !w.Claim.Inclusive() && w.Claim.Slot.Exceeds(&most) != "" {
			w.searchOf(in).passed.extend(in.offered, offered)
			continue
		}
		if looks >= looksPerCycle {
			result.More = true
			break
		}
		looks += p.collectLocked(w, in, looksPerClaim, &result)
	}
	if !result.More {
		in.offered = offered
	}
	result.More = result.More || p.anyDirtyLocked()
	return result
}

// Knows reports whether Collect has looked at a node that has that generation. It is true while there is nothing to collect for.
func (p *Planner) Knows(nodeName string, generation int64) bool {
	if p.idle.Load() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.cycles.nodes[nodeName]
	return n != nil && n.generation == generation
}

// noteIdleLocked records whether there is something to do for cycles.
func (p *Planner) noteIdleLocked() {
	p.idle.Store(p.seeking == 0 && !p.cyclesHaveMore && !p.anyDirtyLocked())
}

// collectLocked lets one claim take room that was freed since its last look, in the zones in which it seeks slots. It looks at
// no more than limit nodes of a zone, unless limit is 0. It returns how many nodes it looked at.
func (p *Planner) collectLocked(w *claim, in *rooms, limit int, result *Result) int {
	looks, found, search := 1, false, w.searchOf(in)
	for _, name := range w.seeks {
		z, since := in.zones[name], search.lookedAt(name)
		if z == nil || z.newest == nil || z.newest.freed <= since {
			search.looked[name] = in.freed
			continue
		}
		if !w.Claim.Inclusive() && p.cappedLocked(w, z, &ledger.Resources{}, &w.Claim.Slot) {
			continue
		}
		at, offered := 0, false
		for n := z.newest; n != nil && n.freed > since && !offered; n = n.older {
			if at++; at > limit && limit > 0 {
				w.dirty = true // the rest is Reconcile's
				break
			}
			offered = p.offers(w, in, n)
		}
		looks += at
		if found = found || offered; !offered {
			search.looked[name] = in.freed
		}
	}
	if !found {
		return looks
	}
	return looks + p.placeLocked(w, in, limit, result, func(d *draft) {
		d.fill()
		d.level()
	})
}

// offers reports whether a node has room for a slot of a claim, or for a part of what it lacks there.
func (p *Planner) offers(w *claim, in *rooms, n *node) bool {
	if w.Claim.Amounts {
		return !p.partLocked(w, in, n).IsZero()
	}
	slots := 0
	if own := n.held.Of(w.uid()); own != nil {
		slots = int(own.Amount.Pods)
	}
	owned := n.ownedBy(w.uid())
	takes := w.slotTakes(slots, &owned)
	return w.mayHave(n, slots) && takes.Exceeds(in.freeRoom(n)) == "" && w.Fit.Takes(n.object)
}
