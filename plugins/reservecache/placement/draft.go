package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"zonewise.dev/plugins/reservecache/ledger"
)

// draft is the slots of one demand as they are to be, worked out on a board. Until it is committed, only the
// board's rooms follow it.
type draft struct {
	board  *board
	demand *Demand
	nodes  *fitted
	size   ledger.Resources
	quotas []quota
	// places are the nodes with slots, by name.
	places map[string]*place
	// counted is how many slots count towards the demand, by zone and in all; slots counts all.
	counted map[string]int
	sum     int
	slots   int
	pickers map[string]*picker
}

// place is the slots on one node.
type place struct {
	name, zone string
	// entry is nil when the board does not know the node.
	entry *entry
	was   ledger.HoldStatus
	// slots are those that the node is to have, used of them by present consumers; settle is how many
	// consumers become ordinary pods.
	slots, used, settle int
}

func newDraft(b *board, d *Demand, known map[string]struct{}, status *ledger.ClaimStatus) *draft {
	dr := &draft{
		board: b, demand: d, nodes: b.under(d.Fit), size: d.Slot.Clone(),
		places:  make(map[string]*place, len(status.Holds)),
		counted: map[string]int{},
		pickers: map[string]*picker{},
	}
	dr.size.Pods = 1
	dr.quotas = d.quotas(dr.nodes, known)
	for _, h := range status.Holds {
		p := &place{name: h.Node, zone: h.Zone, entry: b.byName[h.Node], was: h}
		if p.entry != nil {
			p.zone = p.entry.zone
		}
		dr.places[h.Node] = p
		dr.set(p, h.Slots, len(h.Consumers))
	}
	return dr
}

// set changes the numbers of a place and all sums.
func (dr *draft) set(p *place, slots, used int) {
	before, after := dr.counts(p.slots, p.used), dr.counts(slots, used)
	dr.counted[p.zone] += after - before
	dr.sum += after - before
	dr.slots += slots - p.slots
	p.slots, p.used = slots, used
}

// counts is how many of the slots of a place count: in Headroom mode the unused ones, else all.
func (dr *draft) counts(slots, used int) int {
	if dr.demand.Claim.Mode == ledger.Headroom {
		return slots - used
	}
	return slots
}

// trim drops the unused slots that are not worth anything: on nodes that are unfit or overcommitted, and in
// zones that the demand does not name. Slots of another size get the demand's as far as there is room.
//
// Which nodes are overcommitted is the ledger's word. A cycle leaves them alone, since the ledger may not know
// yet of the room in which the cycle before has placed a slot.
func (dr *draft) trim(overcommitted bool) {
	named := map[string]bool{}
	for _, q := range dr.quotas {
		named[q.zone] = true
	}
	for _, name := range slices.Sorted(maps.Keys(dr.places)) {
		p := dr.places[name]
		if p.entry == nil {
			continue
		}
		unused := p.slots - p.used
		keep := unused
		if overcommitted {
			keep -= min(unused, p.was.Excess)
		}
		switch {
		case !named[p.zone]:
			keep = 0
			dr.settleAt(p, p.used)
		case dr.nodes.unfit[p.entry.index] != "":
			keep = 0
		case !p.was.Requests.Equal(&dr.size):
			p.entry.room.Add(&p.was.Requests, int64(unused))
			keep = int(min(int64(keep), p.entry.room.Slots(&dr.size)))
			p.entry.room.Add(&dr.size, -int64(keep))
			dr.set(p, p.used+keep, p.used)
			continue
		}
		p.entry.room.Add(&p.was.Requests, int64(unused-keep))
		dr.set(p, p.used+keep, p.used)
	}
}

// settleAt makes n consumers of a place ordinary pods.
func (dr *draft) settleAt(p *place, n int) {
	p.settle += n
	dr.set(p, p.slots-n, p.used-n)
}

// fill places what the zones lack, each on the nodes from pick, and then what may be in any zone, the one that
// has the least of its quota first. Of a demand without zones, that is all that is still lacking. Of one with
// zones, it is what takes the place of slots that are used: while a service is replaced pod by pod, one leaves
// another zone than the next one comes to.
func (dr *draft) fill(pick func(zone string) []*entry) {
	for i := range dr.quotas {
		q := &dr.quotas[i]
		for dr.counted[q.zone] < q.slots && dr.place(q.zone, pick) {
		}
	}
	anywhere := dr.demand.wanted() - dr.sum
	if len(dr.demand.Zones) > 0 {
		used, replaced := dr.slots-dr.sum, max(0, dr.slots-dr.demand.wanted())
		anywhere = min(anywhere, used-replaced)
	}
	// What a lost zone lacks is its own matter: with Shift its quota is 0.
	for _, q := range dr.quotas {
		if q.lost {
			anywhere -= max(0, q.slots-dr.counted[q.zone])
		}
	}
	for ; anywhere > 0; anywhere-- {
		least := slices.SortedFunc(slices.Values(dr.quotas), func(a, b quota) int {
			return cmp.Or(cmp.Compare(dr.counted[a.zone]-a.slots, dr.counted[b.zone]-b.slots), strings.Compare(a.zone, b.zone))
		})
		if !slices.ContainsFunc(least, func(q quota) bool { return dr.place(q.zone, pick) }) {
			return
		}
	}
}

// place puts one slot into a zone and reports whether there was room.
func (dr *draft) place(zone string, pick func(string) []*entry) bool {
	pk := dr.pickers[zone]
	if pk == nil {
		pk = dr.newPicker(pick(zone))
		dr.pickers[zone] = pk
	}
	e := pk.next(dr)
	if e == nil {
		return false
	}
	p := dr.places[e.name]
	if p == nil {
		p = &place{name: e.name, zone: e.zone, entry: e}
		dr.places[e.name] = p
	}
	e.room.Add(&dr.size, -1)
	dr.set(p, p.slots+1, p.used)
	return true
}

// picker yields the nodes of a zone with room for a slot: those that had slots before a restart, then the
// ones that are left with the least room.
type picker struct {
	candidates []candidate
	at         int
}

type candidate struct {
	entry *entry
	// limit is how many slots the node may have in all; less than 0 for no limit.
	limit int
	// slots is how many slots there is room for, and share the sum over the resources of the slot of how
	// many thousandths of a slot there is room for.
	slots, share int64
}

func (dr *draft) newPicker(entries []*entry) *picker {
	pk := &picker{}
	var preferred []candidate
	for _, e := range entries {
		if dr.nodes.unfit[e.index] != "" {
			continue
		}
		n := e.room.Slots(&dr.size)
		if n == 0 {
			continue
		}
		if limit := dr.demand.Prefer[e.name]; limit > 0 {
			preferred = append(preferred, candidate{entry: e, limit: limit})
		}
		pk.candidates = append(pk.candidates, candidate{entry: e, limit: -1, slots: n, share: share(&e.room, &dr.size)})
	}
	slices.SortFunc(pk.candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.slots, b.slots), cmp.Compare(a.share, b.share), strings.Compare(a.entry.name, b.entry.name))
	})
	slices.SortFunc(preferred, func(a, b candidate) int { return strings.Compare(a.entry.name, b.entry.name) })
	pk.candidates = append(preferred, pk.candidates...)
	return pk
}

// next returns the node for the next slot, or nil.
func (pk *picker) next(dr *draft) *entry {
	for ; pk.at < len(pk.candidates); pk.at++ {
		c := &pk.candidates[pk.at]
		if p := dr.places[c.entry.name]; c.limit >= 0 && p != nil && p.slots-p.used >= c.limit {
			continue
		}
		if c.entry.room.Slots(&dr.size) > 0 {
			return c.entry
		}
	}
	return nil
}

// share is how full a node is in terms of a slot: the sum over CPU, memory, ephemeral storage and scalar
// resources of the slot of the thousandths of it that there is room for.
func share(room, size *ledger.Resources) int64 {
	var sum int64
	add := func(room, size int64) {
		if size > 0 {
			sum += room / size * 1000
			sum += room % size * 1000 / size
		}
	}
	add(room.MilliCPU, size.MilliCPU)
	add(room.Memory, size.Memory)
	add(room.EphemeralStorage, size.EphemeralStorage)
	for name, amount := range size.Scalar {
		add(room.Amount(name), amount)
	}
	return sum
}

// level drops unused slots that are more than the demand wants, from the zones that have more than their
// quota, the emptiest nodes first, and then makes consumers ordinary pods until there are no more slots than
// wanted.
func (dr *draft) level() {
	over := dr.sum - dr.demand.wanted()
	for i := len(dr.quotas) - 1; i >= 0 && over > 0; i-- {
		q := &dr.quotas[i]
		for _, p := range dr.emptiest(q.zone) {
			n := min(over, dr.counted[q.zone]-q.slots, p.slots-p.used)
			if n <= 0 {
				continue
			}
			p.entry.room.Add(&dr.size, int64(n))
			dr.set(p, p.slots-n, p.used)
			over -= n
		}
	}
	dr.settle(dr.slots - dr.demand.wanted())
}

// settle makes n consumers ordinary pods and drops their slots, first in the zones that have more slots than
// their quota.
func (dr *draft) settle(n int) {
	if n <= 0 {
		return
	}
	inZone := map[string]int{}
	for _, p := range dr.places {
		inZone[p.zone] += p.slots
	}
	names := slices.Sorted(maps.Keys(dr.places))
	for _, anywhere := range []bool{false, true} {
		for _, name := range names {
			p := dr.places[name]
			m := min(n, p.used)
			if !anywhere {
				m = min(m, inZone[p.zone]-dr.quota(p.zone))
			}
			if m > 0 {
				dr.settleAt(p, m)
				inZone[p.zone] -= m
				n -= m
			}
		}
	}
}

func (dr *draft) quota(zone string) int {
	for _, q := range dr.quotas {
		if q.zone == zone {
			return q.slots
		}
	}
	return 0
}

// emptiest returns the places of a zone in the opposite order to that of filling.
func (dr *draft) emptiest(zone string) []*place {
	var places []*place
	for _, p := range dr.places {
		if p.zone == zone && p.entry != nil {
			places = append(places, p)
		}
	}
	slices.SortFunc(places, func(a, b *place) int {
		return -cmp.Or(cmp.Compare(a.entry.room.Slots(&dr.size), b.entry.room.Slots(&dr.size)),
			cmp.Compare(share(&a.entry.room, &dr.size), share(&b.entry.room, &dr.size)), strings.Compare(a.name, b.name))
	})
	return places
}

// changes returns what has to be changed in the ledger.
func (dr *draft) changes(seen func(*entry) *ledger.Seen) []ledger.Slot {
	var slots []ledger.Slot
	for _, name := range slices.Sorted(maps.Keys(dr.places)) {
		p := dr.places[name]
		resized := p.slots > 0 && !p.was.Requests.Equal(&dr.size)
		if p.entry == nil || p.slots == p.was.Slots && p.settle == 0 && !resized {
			continue
		}
		slots = append(slots, ledger.Slot{Node: name, Requests: dr.size, Count: p.slots, Settle: p.settle, Seen: seen(p.entry)})
	}
	return slots
}
