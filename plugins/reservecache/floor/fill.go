package floor

import (
	"cmp"
	"slices"
)

// candidate is a node with how many slots it has room for.
type candidate struct {
	*node
	takes int
}

func (a candidate) compare(b candidate) int {
	return cmp.Or(cmp.Compare(a.takes, b.takes), cmp.Compare(a.name, b.name))
}

// fill places slots in a zone, on the nodes with the least room for them. Where all nodes were searched before, it
// looks at those alone that have got room since.
func (f *Floor) fill(c *claimState, zone string, more int, gained *gainedNodes) {
	z, state := f.zones[zone], c.zone(zone)
	if z == nil || more <= 0 || z.capped[c] {
		return
	}
	beyond := more - f.allowed(c, z, more)
	if more -= beyond; more <= 0 {
		f.limit(c, z)
		return
	}
	best := &selection[candidate]{limit: more, compare: candidate.compare}
	look := func(n *node) {
		found := candidate{n, f.takes(c, n, more)}
		if found.takes > 0 && best.wants(found) && c.Nodes.MetBy(n.object) { // which costs most
			best.add(found)
		}
	}
	if state.searched {
		for _, n := range gained.nodes {
			if n.zone == z && f.nodes[n.name] == n {
				look(n)
			}
		}
	} else {
		for _, n := range z.nodes {
			look(n)
		}
	}
	for _, found := range best.sorted() {
		if more <= 0 {
			break
		}
		n := min(more, f.takes(c, found.node, more))
		if n <= 0 {
			continue
		}
		h := found.holding(c)
		if h == nil {
			h = f.newHolding(c, found.node)
		}
		fewer := h.exchanged(n)
		f.change(h, func() {
			h.slots = h.filled() + n
			h.dropLastFormer(fewer)
		})
		more -= n
	}
	state.searched = more > 0
	if more <= 0 && beyond > 0 {
		if f.allowed(c, z, 1) > 0 { // since former slots have gone
			f.fill(c, zone, beyond, gained)
		} else {
			f.limit(c, z)
		}
	}
}

// takes is how many more slots of a claim a node that may have them has room for, up to a limit.
func (f *Floor) takes(c *claimState, n *node, limit int) int {
	h := n.holding(c)
	if h == nil || len(h.former) == 0 {
		if c.Slot.Exceeds(&n.room) != "" {
			return 0
		}
		limit = int(min(n.room.Slots(&c.Slot), int64(limit)))
	}
	if h == nil {
		if c.PerNode > 0 {
			limit = min(limit, c.PerNode)
		}
		return limit
	}
	filled := h.filled()
	if filled > h.slots && len(h.former) > 0 {
		return 0 // owners take up former slots: none is exchanged for one that an owner would have
	}
	if c.PerNode > 0 {
		limit = min(limit, c.PerNode-filled-h.beside())
	}
	if filled == h.slots && len(h.former) == 0 {
		return max(0, limit)
	}
	takes := 0
	for takes < limit && h.hasRoom(filled+takes+1, h.exchanged(takes+1)) {
		takes++
	}
	return takes
}

// allowed is how many of some slots the limit lets a claim have in a zone.
func (f *Floor) allowed(c *claimState, z *zone, more int) int {
	if f.fraction >= 1 {
		return more
	}
	for name := range c.Slot.Named() {
		spare := int64(f.fraction*float64(z.allocatable.Amount(name))) - z.held.Amount(name)
		more = min(more, int(max(0, spare)/c.Slot.Amount(name)))
	}
	return more
}

// limit notes that the fraction allows a claim no more in a zone.
func (f *Floor) limit(c *claimState, z *zone) {
	z.capped[c] = true
	f.touch(c)
}

// capped reports whether the fraction keeps a claim from more in a zone.
func (f *Floor) capped(c *claimState, zone string) bool {
	z := f.zones[zone]
	return z != nil && z.capped[c]
}

// uncap has claims that the fraction has kept from slots in a zone try again, on all of its nodes: some may have got
// room meanwhile.
func (f *Floor) uncap(z *zone) {
	for c := range z.capped {
		if f.allowed(c, z, 1) > 0 {
			delete(z.capped, c)
			c.zone(z.name).searched = false
			f.touch(c)
			f.markDue(c)
		}
	}
}

// selection keeps the first of many in an order, as many as the limit says: as may be needed, since each stands for one
// slot at least.
type selection[T any] struct {
	limit   int
	compare func(a, b T) int
	found   []T
	// full means that found is sorted and has as many as may be needed.
	full bool
}

// wants reports whether a candidate may be among the first.
func (s *selection[T]) wants(c T) bool {
	return !s.full || s.compare(c, s.found[len(s.found)-1]) < 0
}

func (s *selection[T]) add(c T) {
	const few = 16
	switch {
	case s.limit > few: // sorted by the caller's last call
		s.found = append(s.found, c)
	case !s.full:
		s.found = append(s.found, c)
		if s.full = len(s.found) == s.limit; s.full {
			slices.SortFunc(s.found, s.compare)
		}
	case s.wants(c):
		at, _ := slices.BinarySearchFunc(s.found, c, s.compare)
		copy(s.found[at+1:], s.found[at:])
		s.found[at] = c
	}
}

func (s *selection[T]) sorted() []T {
	slices.SortFunc(s.found, s.compare)
	return s.found[:min(s.limit, len(s.found))]
}
