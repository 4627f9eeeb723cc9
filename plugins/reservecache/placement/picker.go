package placement

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/reservecache/ledger"
)

// picker yields the nodes of a zone with room for a slot, the one with the least room first.
type picker struct {
	candidates []candidate
	at         int
	// cut means that not all nodes were looked at. upTo is the latest time of freeing among the nodes.
	cut  bool
	upTo uint64
}

type candidate struct {
	node *node
	// slots is how many slots there is room for, and share how much room there is in terms of a slot.
	slots, share int64
}

func compareCandidates(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.slots, b.slots), cmp.Compare(a.share, b.share), strings.Compare(a.node.name, b.node.name))
}

// newPicker looks at the nodes of a zone that were freed since the claim last looked at all of them. It keeps as many
// candidates as slots are missing, since each has room for at least one.
func (d *draft) newPicker(zoneName string) *picker {
	pk := &picker{upTo: d.board.freed}
	missing := max(1, d.total)
	fits := d.planner.fits[d.Fit.key]
	for n := range d.freed(zoneName, pk) {
		if !d.mayTake(n) {
			continue
		}
		room := n.freeRoom()
		c := candidate{node: n, slots: room.Slots(&d.Claim.Slot)}
		if c.slots == 0 || !fits.takes(n) {
			continue
		}
		c.share = share(room, &d.Claim.Slot)
		at, _ := slices.BinarySearchFunc(pk.candidates, c, compareCandidates)
		if len(pk.candidates) == missing {
			pk.cut = true
			if at == missing {
				continue
			}
			pk.candidates = pk.candidates[:missing-1]
		}
		pk.candidates = slices.Insert(pk.candidates, at, c)
	}
	return pk
}

// freed yields the nodes of a zone that were freed since the claim last looked at all of them, up to the draft's limit.
func (d *draft) freed(zoneName string, pk *picker) iter.Seq[*node] {
	return func(yield func(*node) bool) {
		z := d.board.zones[zoneName]
		if z == nil {
			return
		}
		looked := 0
		for n := z.newest; n != nil && n.freed > d.lookedAt(zoneName); n = n.older {
			if looked++; d.limit > 0 && looked > d.limit {
				pk.cut = true
				return
			}
			d.looks++
			if !d.board.inView(n) {
				pk.cut = true // one that the other view has is not searched
			} else if !yield(n) {
				return
			}
		}
	}
}

// searched reports whether no node that was freed up to pk.upTo has room.
func (pk *picker) searched() bool { return !pk.cut && pk.at >= len(pk.candidates) }

// mayTake reports whether a node may have one more slot, apart from its room.
func (d *draft) mayTake(n *node) bool {
	if pl := d.places[n.name]; pl != nil {
		return d.mayHave(n.name, pl.slots, len(pl.was.Consumers))
	}
	return d.mayHave(n.name, 0, 0)
}

// next returns the node for the next slot, or nil.
func (pk *picker) next(d *draft) *node {
	for ; pk.at < len(pk.candidates); pk.at++ {
		n := pk.candidates[pk.at].node
		if !d.mayTake(n) || n.freeRoom().Slots(&d.Claim.Slot) == 0 {
			continue
		}
		if added := d.added[n.zone.name]; d.planner.cappedLocked(d.claim, n.zone, &added) {
			pk.cut = true
			return nil
		}
		return n
	}
	return nil
}

// cappedLocked reports whether one more slot in a zone, beside what was added there without a record, would exceed what may be held,
// and records that.
func (p *Planner) cappedLocked(w *claim, z *zone, added *ledger.Resources) bool {
	if w.Claim.Amounts {
		return false // a part may be added
	}
	delete(w.capped, z.name)
	if p.fraction >= 1 {
		return false
	}
	for name := range w.Claim.Slot.Named() {
		if p.spareLocked(z, name)-added.Amount(name) < w.Claim.Slot.Amount(name) {
			w.capped[z.name] = true
			return true
		}
	}
	return false
}

// spareLocked is how much more of a resource may be held unused in a zone; negative if too much is.
func (p *Planner) spareLocked(z *zone, name v1.ResourceName) int64 {
	return int64(p.fraction*float64(z.allocatable.Amount(name))) - z.unused.Amount(name)
}

// share is the room in terms of a slot: for CPU, memory, ephemeral storage and each scalar resource, the thousandths of the
// slot's amount that fit, added up.
func share(room, slot *ledger.Resources) int64 {
	var sum int64
	add := func(room, slot int64) {
		if slot > 0 {
			sum += room / slot * 1000
			sum += room % slot * 1000 / slot
		}
	}
	add(room.MilliCPU, slot.MilliCPU)
	add(room.Memory, slot.Memory)
	add(room.EphemeralStorage, slot.EphemeralStorage)
	for name, amount := range slot.Scalar {
		add(room.Amount(name), amount)
	}
	return sum
}
