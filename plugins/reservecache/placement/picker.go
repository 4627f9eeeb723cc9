package placement

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"zonewise.dev/plugins/reservecache/ledger"
)

// picker yields the nodes of a zone with room for a slot, the one with the least room first.
type picker struct {
	candidates []candidate
	at         int
	// cut means that not all nodes were looked at. upTo is the last freeing among the nodes.
	cut  bool
	upTo uint64
}

type candidate struct {
	node *nodeRoom
	// owners means that pods of the claim run there outside of its slots.
	owners bool
	// slots is how many slots there is room for, and share how much room there is in terms of a slot.
	slots, share int64
}

// compareCandidates has a slot go to pods that run already, and otherwise where the least room is left.
func compareCandidates(a, b candidate) int {
	if a.owners != b.owners {
		if a.owners {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.slots, b.slots), cmp.Compare(a.share, b.share), strings.Compare(a.node.name, b.node.name))
}

// newPicker looks at the nodes of a zone that were freed since the claim last looked at all of them. It keeps as many
// candidates as slots are missing, since each has room for at least one.
func (d *draft) newPicker(zoneName string) *picker {
	pk := &picker{upTo: d.nodes.freeings}
	missing, slot := max(1, d.claim.total), &d.claim.Slot
	for n := range d.freedNodes(zoneName, pk) {
		if !d.mayAdd(n) || !d.claim.Requirements.MetBy(n.object) {
			continue
		}
		room := d.nodes.freeRoom(n)
		found := candidate{node: n, owners: d.hasOwnersOutside(n), slots: room.Slots(slot), share: share(room, slot)}
		at, _ := slices.BinarySearchFunc(pk.candidates, found, compareCandidates)
		if len(pk.candidates) == missing {
			pk.cut = true
			if at == missing {
				continue
			}
			pk.candidates = pk.candidates[:missing-1]
		}
		pk.candidates = slices.Insert(pk.candidates, at, found)
	}
	return pk
}

// freedNodes yields the nodes of a zone that were freed since the claim last looked at all of them, up to the draft's
// limit.
func (d *draft) freedNodes(zoneName string, pk *picker) iter.Seq[*nodeRoom] {
	return func(yield func(*nodeRoom) bool) {
		z := d.nodes.zones[zoneName]
		if z == nil {
			return
		}
		looked, since := 0, d.claim.searchOf(d.nodes).lookedUpTo(zoneName)
		for n := z.newest; n != nil && n.freedAt > since; n = n.older {
			if looked++; d.limit > 0 && looked > d.limit {
				pk.cut = true
				return
			}
			d.looks++
			if !yield(n) {
				return
			}
		}
	}
}

// searched reports whether no node that was freed up to pk.upTo has room.
func (pk *picker) searched() bool { return !pk.cut && pk.at >= len(pk.candidates) }

// nextNode returns the node for the next slot, or nil.
func (pk *picker) nextNode(d *draft) *nodeRoom {
	for ; pk.at < len(pk.candidates); pk.at++ {
		n := pk.candidates[pk.at].node
		if !d.mayAdd(n) {
			continue
		}
		owned := n.ownedBy(d.claim.UID)
		added, slot := d.added[n.zone.name], d.claim.roomForNextSlot(d.slotsOn(n), &owned)
		if d.planner.cappedLocked(d.claim, n.zone, &added, &slot) {
			pk.cut = true
			return nil
		}
		return n
	}
	return nil
}

// share is the room in terms of a slot: for CPU, memory, ephemeral storage and each scalar resource, the thousandths of
// the slot's amount that fit, added up.
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
