package placement

import (
	"slices"

	"zonewise.dev/plugins/reservecache/ledger"
)

// tries is how often a draft is repeated when its room has gone to nominees or others.
const tries = 3

// placeLocked makes drafts of a demand until one is recorded. work fills the draft. The lock is released
// while it asks for nominees; the view is that of the board's last update. It returns how many nodes were looked at.
func (p *Planner) placeLocked(w *wanted, limit int, result *Result, work func(*draft)) int {
	view, from := p.board.view, p.board.from
	looks, recorded := 0, false
	for range tries {
		d := p.newDraft(w, limit)
		work(d)
		looks += d.looks
		if recorded = p.recordLocked(d, view, from, result); recorded {
			break
		}
		if p.claims[w.uid()] != w {
			return looks // changed or gone meanwhile
		}
	}
	if !recorded {
		w.dirty = true // the nominees that are known now are in no other draft's way
	}
	p.countLocked(w)
	p.touched[w.uid()] = struct{}{}
	if counted, _ := w.sum(); counted >= w.total {
		clear(w.away)
		clear(w.full)
		clear(w.capped)
	}
	return looks
}

// recordLocked records a draft. It returns false if the room is gone; the nodes are then as if the draft had not been made.
func (p *Planner) recordLocked(d *draft, view View, from source, result *Result) bool {
	var more []*place
	for _, pl := range d.places {
		if pl.node != nil && pl.gain() > 0 {
			more = append(more, pl)
		}
	}
	if len(more) > 0 && p.nominees != nil {
		for _, pl := range more {
			pl.node.pending.Add(&d.Claim.Slot, int64(pl.gain()))
		}
		records := d.records
		p.askLocked(view, from, more)
		fits := p.claims[d.uid()] == d.wanted && d.records == records // another call may have placed the same slots
		for _, pl := range more {
			fits = fits && p.board.here(pl.node) && !pl.node.roomFor(d.Claim.Priority).Negative(&d.Claim.Slot)
		}
		for _, pl := range more {
			pl.node.pending.Add(&d.Claim.Slot, -int64(pl.gain()))
		}
		if !fits {
			for _, pl := range d.places {
				if pl.node != nil {
					pl.node.reset()
					p.board.free(pl.node) // while the lock was released, others may have found the room taken
				}
			}
			return false
		}
	}
	for name, pk := range d.pickers {
		if pk.searched() {
			d.looked[name] = pk.upTo
		}
	}
	changes := d.changes()
	if len(changes) == 0 {
		return true
	}
	d.records++
	p.holds.Change(d.uid(), changes)
	p.board.weighHeld()
	for _, pl := range d.places {
		// A consumer gives up all of its slots, and what is used in a lost zone is in the others' quotas.
		d.dirty = d.dirty || pl.settle > 0
		if pl.node != nil && (pl.gain() < 0 || pl.settle > 0 || pl.was.Resized) {
			p.board.free(pl.node)
		}
	}
	if !slices.Contains(result.Changed, d.uid()) {
		result.Changed = append(result.Changed, d.uid())
	}
	return true
}

// gain is how many more unused slots a place gets.
func (pl *place) gain() int { return (pl.slots - pl.used) - (pl.was.Slots - pl.was.Used) }

// askLocked asks for the nominees of nodes without the lock, and then updates the board.
func (p *Planner) askLocked(view View, from source, places []*place) {
	answers := make([][]Nominee, len(places))
	p.mu.Unlock()
	for i, pl := range places {
		answers[i] = p.nominees(pl.name)
	}
	p.mu.Lock()
	p.board.update(view, from)
	for i, pl := range places {
		p.nominateLocked(pl.node, answers[i])
	}
}

// nominateLocked records which pods are nominated to a node.
func (p *Planner) nominateLocked(n *node, nominees []Nominee) {
	if len(nominees) == 0 {
		delete(p.nominated, n)
	} else {
		p.nominated[n] = struct{}{}
	}
	var was, is ledger.Resources
	for i := range n.nominees {
		was.Add(&n.nominees[i].Requests, 1)
	}
	for i := range nominees {
		is.Add(&nominees[i].Requests, 1)
	}
	n.nominees = nominees
	if was.Exceeds(&is) != "" {
		p.board.free(n)
	}
}

// askAgainLocked asks for the nominees of the nodes that had any, because the end of a nomination does not change its node.
func (p *Planner) askAgainLocked(view View, from source) {
	if len(p.nominated) == 0 {
		return
	}
	places := make([]*place, 0, len(p.nominated))
	for n := range p.nominated {
		places = append(places, &place{name: n.name, node: n})
	}
	p.askLocked(view, from, places)
}
