package placement

import (
	"maps"
	"slices"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

const (
	// nodesPerDraft limits how many nodes one draft of amounts has: it is recorded as a whole, or not at all.
	nodesPerDraft = 256
	// looksPerNode is how many looks of a search it takes to bring the amount of a node in line.
	looksPerNode = 8
)

// amounts is the state of a claim for amounts. Its nodes have nothing to do with each other, so each is looked at by itself, when
// it has changed.
type amounts struct {
	// stale are the nodes that Reconcile must look at.
	stale map[string]bool
	// drafted are the nodes that were looked at since they were last counted, and began the point at which that draft began.
	drafted map[string]bool
	began   uint64
	beganIn *rooms
	// lacks are the nodes on which a part is missing.
	lacks map[string]lack
	// complete is set once all nodes have been looked at.
	complete bool
}

// lack is a node on which a part is missing.
type lack struct {
	zone string
	// usable means that freed room of the node may be taken.
	usable bool
}

// look marks a node for Reconcile, or the claim, if it is one for slots.
func (w *claim) look(nodeName string) {
	w.dirty = true
	if w.Claim.Amounts {
		w.stale[nodeName] = true
	}
}

// lookAgain marks the nodes of a draft that was given up.
func (w *claim) lookAgain() {
	for name := range w.drafted {
		w.look(name)
	}
}

// missing is what a claim lacks on a node on which it has an amount.
func (w *claim) missing(nodeName string, has *ledger.Resources) ledger.Resources {
	desired := w.Nodes[nodeName]
	missing := desired.Less(has)
	return missing.Positive()
}

// forAmountsLocked returns the claims for amounts.
func (p *Planner) forAmountsLocked() []*claim {
	return slices.DeleteFunc(slices.Clone(p.queue), func(w *claim) bool { return !w.Claim.Amounts })
}

// asDesiredLocked reports whether a claim needs nothing of a node, and has nothing to give up there.
func (p *Planner) asDesiredLocked(w *claim, n *node) bool {
	desired := w.Nodes[n.name]
	own := p.worker.held.Node(n.name).Of(w.uid())
	if own == nil {
		return desired.IsZero()
	}
	_, lacks := w.lacks[n.name]
	return !lacks && !n.listed && n.zone != nil && w.Fit.Takes(n.object) && own.Amount.Equal(&desired)
}

// measureLocked brings the stale nodes of a claim in line with its amounts, some at a time. It returns how many nodes it looked at.
func (p *Planner) measureLocked(w *claim, result *Result) int {
	names := slices.Sorted(maps.Keys(w.stale))
	names = names[:min(nodesPerDraft, len(names))]
	for _, name := range names {
		delete(w.stale, name)
	}
	looks := 0
	if len(names) > 0 {
		looks = p.placeLocked(w, p.worker, 0, result, func(d *draft) {
			for _, name := range names {
				d.looks += looksPerNode
				d.measure(name)
			}
		})
	}
	for _, name := range names {
		delete(w.excess, name)
	}
	w.dirty = w.dirty || len(w.stale) > 0
	w.complete = w.complete || len(w.stale) == 0
	return looks
}

// measure decides how much of a node is held: what the claim wants, the pods there among it, as far as there is room.
func (d *draft) measure(name string) {
	d.drafted[name] = true
	pl := d.placeOf(name, d.planner.holds.StatusOn(d.uid(), name))
	switch {
	case !pl.ready:
		d.hold(pl, ledger.Resources{})
		return
	case pl.node == nil:
		return // only the cycles see it yet
	case d.Fit.Of(pl.node.object) != "":
		d.hold(pl, ledger.Resources{})
		return
	}
	keep := pl.unused.Clone()
	if excess, full := d.excess[name]; full {
		keep.Add(&excess, -1)
		keep = keep.Positive()
	}
	d.hold(pl, d.amountWith(name, &pl.owned, &keep))
	room := d.rooms.freeRoom(pl.node).Positive()
	more := d.wantedUnused(name, &pl.owned)
	more = more.Less(&pl.unused)
	more.Lower(&room)
	d.curb(pl.node.zone, &more)
	more.Add(&pl.unused, 1)
	d.hold(pl, d.amountWith(name, &pl.owned, &more))
}

// wantedUnused is what a claim wants to be unused of a node where its pods ask for owned.
func (w *claim) wantedUnused(nodeName string, owned *ledger.Resources) ledger.Resources {
	desired := w.Nodes[nodeName]
	unused := desired.Less(owned)
	return unused.Positive()
}

// amountWith is the amount of a node of which as much is unused, or all that the claim wants.
func (w *claim) amountWith(nodeName string, owned, unused *ledger.Resources) ledger.Resources {
	desired := w.Nodes[nodeName]
	amount, wanted := desired.Clone(), w.wantedUnused(nodeName, owned)
	amount.Lower(owned)
	wanted.Lower(unused)
	amount.Add(&wanted, 1)
	return amount.Positive()
}

// curb reduces what is to be added in a zone to what may be held there.
func (d *draft) curb(z *zone, more *ledger.Resources) {
	if d.planner.fraction >= 1 {
		return
	}
	added, all := d.added[z.name], more.Clone()
	for name := range all.Named() {
		if spare := max(0, d.planner.spareLocked(z, name)-added.Amount(name)); spare < more.Amount(name) {
			more.Put(name, spare)
			d.capped[z.name] = true
		}
	}
}

// fillFreed takes what the claim lacks on freed nodes.
func (d *draft) fillFreed() {
	for _, zoneName := range d.seeks {
		pk := &picker{upTo: d.rooms.freed}
		d.pickers[zoneName] = pk
		for n := range d.freed(zoneName, pk) {
			if !d.planner.partLocked(d.claim, d.rooms, n).IsZero() {
				d.measure(n.name)
			}
		}
	}
}

// partLocked is the part of what a claim lacks on a node for which there is room.
func (p *Planner) partLocked(w *claim, in *rooms, n *node) *ledger.Resources {
	if lack, lacks := w.lacks[n.name]; !lacks || !lack.usable || !w.Fit.Takes(n.object) {
		return &ledger.Resources{}
	}
	owned, has := n.ownedBy(w.uid()), holds.Hold{Claim: &w.Claim}
	if own := n.held.Of(w.uid()); own != nil {
		has = *own
	}
	unused, room := has.Unused(n.ownedBy), in.freeRoom(n).Positive()
	more := w.wantedUnused(n.name, &owned)
	more = more.Less(&unused)
	more.Lower(&room)
	more = more.Positive()
	more.Add(&unused, 1)
	part := w.amountWith(n.name, &owned, &more)
	part = part.Less(&has.Amount)
	part = part.Positive()
	return &part
}

// countNodesLocked works out what is missing on the nodes of the last draft, and in which zones the claim seeks room.
func (p *Planner) countNodesLocked(w *claim) {
	if len(w.drafted) == 0 {
		return
	}
	for name := range w.drafted {
		has := p.holds.StatusOn(w.uid(), name)
		n := p.nodeLocked(name)
		there := n != nil && !unready(n.object)
		if !there {
			has.Amount = ledger.Resources{}
		}
		if missing := w.missing(name, &has.Amount); missing.IsZero() {
			delete(w.lacks, name)
			delete(w.away, name)
			delete(w.full, name)
			continue
		}
		lack := lack{usable: there && w.Fit.Of(n.object) == ""}
		if delete(w.away, name); !there {
			w.away[name] = 1
		} else if lack.zone = n.zone.name; lack.usable && !slices.Contains(w.seeks, lack.zone) {
			w.searchOf(w.beganIn).looked[lack.zone] = w.began // up to then all nodes of the zone were looked at that lack something
		}
		w.lacks[name] = lack
	}
	clear(w.drafted)
	zones := map[string]bool{}
	for _, lack := range w.lacks {
		if lack.usable {
			zones[lack.zone] = true
		}
	}
	w.seeks = slices.AppendSeq(w.seeks[:0], maps.Keys(zones))
	slices.Sort(w.seeks)
}

// uncapNodesLocked marks the nodes of a claim on which the limit on what is held no longer keeps it from taking room.
func (p *Planner) uncapNodesLocked(w *claim) {
	maps.DeleteFunc(w.capped, func(zone string, _ bool) bool { return !slices.Contains(w.seeks, zone) })
	if len(w.capped) == 0 {
		return
	}
	spare := map[string]bool{}
	for name, lack := range w.lacks {
		n := p.worker.nodes[name]
		if !w.capped[lack.zone] || n == nil || n.zone == nil {
			continue
		}
		for resource := range p.partLocked(w, p.worker, n).Named() {
			if p.spareLocked(n.zone, resource) > 0 {
				spare[lack.zone] = true
				w.look(name)
				break
			}
		}
	}
	for zone := range spare {
		delete(w.capped, zone)
	}
}
