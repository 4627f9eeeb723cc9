package floor

import (
	"cmp"
	"maps"
	"slices"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Settle gives claims the slots that they lack, the oldest first, and takes those that they have too many. It looks at
// claims that have changed, and offers nodes that have got room to those that lack slots: where neither happened, it
// does nothing.
func (f *Floor) Settle() {
	if f.nodesChanged {
		f.nodesChanged = false
		for _, c := range f.order {
			if c.Zones == nil {
				f.setDesired(c)
			}
		}
	}
	for _, c := range f.order {
		f.takeSeed(c)
	}
	for more := true; more; {
		gained := f.takeGained()
		more = false
		for _, c := range f.order {
			if c.open && (c.due || gained.help(c)) {
				f.settleClaim(c, gained)
				more = true
			}
		}
	}
}

// gainedNodes are nodes that have got room, and how much they had then.
type gainedNodes struct {
	nodes []*node
	rooms []ledger.Resources
}

func (f *Floor) takeGained() *gainedNodes {
	g := &gainedNodes{}
	for _, n := range f.gained {
		n.gained = false
		if f.nodes[n.name] == n {
			g.nodes, g.rooms = append(g.nodes, n), append(g.rooms, n.room)
		}
	}
	f.gained = f.gained[:0]
	return g
}

// help reports whether a node may have room for a claim.
func (g *gainedNodes) help(c *claimState) bool {
	for i, n := range g.nodes {
		if c.Slot.Exceeds(&g.rooms[i]) == "" || (c.kept > 0 || len(c.partly) > 0) && n.holding(c) != nil {
			return true
		}
	}
	return false
}

// settleClaim brings one claim as near to what it wants as there is room.
func (f *Floor) settleClaim(c *claimState, gained *gainedNodes) {
	c.due = false
	f.cover(c)
	for _, zone := range c.homes() {
		if lacks := c.wanted(zone) - c.zone(zone).unused; lacks > 0 {
			f.fill(c, zone, lacks, gained)
		} else {
			c.zone(zone).searched = false // it may have got room at which nothing has looked
		}
	}
	f.shift(c, gained)
	f.thin(c)
	f.trimFormer(c)
	if c.inOrder() {
		f.close(c)
	} else {
		c.due = false
	}
}

// cover holds what owners leave of the slots that they take up, for as many as are desired.
func (f *Floor) cover(c *claimState) {
	if len(c.partly) == 0 {
		return
	}
	partly := slices.SortedFunc(maps.Values(c.partly), compareNodes)
	for _, h := range partly {
		z, zone := c.zone(h.node.zone.name), h.node.zone.name
		for h.slots < h.used && z.covered < c.desired[zone] && c.Nodes.MetBy(h.node.object) {
			fewer := h.exchanged(1)
			if !h.hasRoom(h.slots+1, fewer) {
				break
			}
			f.change(h, func() {
				h.slots++
				h.dropLastFormer(fewer)
			})
		}
	}
}

// shift has a claim hold in its other zones what one of them has no room for.
func (f *Floor) shift(c *claimState, gained *gainedNodes) {
	homes := c.homes()
	for even := 1; even >= 0; even-- { // as evenly as there is room, and then wherever there is
		for i, zone := range homes {
			lacks := c.missing()
			if lacks <= 0 {
				return
			}
			if even == 1 {
				lacks = (lacks + len(homes) - i - 1) / (len(homes) - i)
			}
			if c.zone(zone).unused >= c.wanted(zone) {
				f.fill(c, zone, lacks, gained)
			}
		}
	}
}

// thin takes slots away that are too many: those that are held away from home, and those that are not wanted any more.
func (f *Floor) thin(c *claimState) {
	for _, zone := range slices.Sorted(maps.Keys(c.zones)) {
		z := c.zones[zone]
		surplus := min(-c.missing(), z.unused-c.wanted(zone))
		rests := z.covered - c.desired[zone]
		if surplus <= 0 && rests <= 0 {
			continue
		}
		take := func(h *holding, n int) {
			f.change(h, func() { h.slots -= n })
			f.markGained(h.node)
		}
		mostFree := func(a, b *holding) int { return cmp.Or(cmp.Compare(b.free(), a.free()), compareNodes(a, b)) }
		for _, h := range c.first(surplus, zone, (*holding).free, mostFree) {
			n := min(surplus, h.free())
			surplus -= n
			take(h, n)
		}
		for _, h := range c.first(rests, zone, (*holding).rests, compareNodes) {
			n := min(rests, h.rests())
			rests -= n
			take(h, n)
		}
	}
}

// first returns the first holdings of a zone that have any of some slots: as many as n of these may need.
func (c *claimState) first(n int, zone string, slots func(*holding) int, compare func(a, b *holding) int) []*holding {
	if n <= 0 {
		return nil
	}
	found := selection[*holding]{limit: n, compare: compare}
	for at, h := range c.holdings {
		if at.zone.name == zone && slots(h) > 0 {
			found.add(h)
		}
	}
	return found.sorted()
}

// sorted are the holdings of a claim by the names of their nodes.
func (c *claimState) sorted() []*holding {
	return slices.SortedFunc(maps.Values(c.holdings), compareNodes)
}

func compareNodes(a, b *holding) int { return cmp.Compare(a.node.name, b.node.name) }

// hasRoom reports whether a node has room for that many slots, and so many fewer former ones, in place of what it has.
func (h *holding) hasRoom(slots, fewer int) bool {
	return h.fitsInto(&h.node.room, slots, fewer)
}

// fitsInto is hasRoom where the node has other room.
func (h *holding) fitsInto(room *ledger.Resources, slots, fewer int) bool {
	after := h.unusedWith(slots, fewer)
	more := after.Beyond(&h.unused)
	return more.Exceeds(room) == ""
}

// takeSeed gives a claim again what a status says that it had, as far as pods leave room: nominations take no slot
// away.
func (f *Floor) takeSeed(c *claimState) {
	for i := range c.seed {
		s := &c.seed[i]
		n := f.nodes[s.Node]
		if n == nil || s.Slots <= 0 {
			continue
		}
		h, met := n.holding(c), c.Nodes.MetBy(n.object)
		if h == nil {
			h = f.newHolding(c, n)
		}
		switch {
		case met && s.Size.Equal(&c.Slot):
			for range s.Slots {
				if left := n.left(); !h.fitsInto(&left, h.slots+1, 0) {
					break
				}
				f.change(h, func() { h.slots++ })
			}
		case anyReady.MetBy(n.object):
			nodes := c.Nodes
			if !met {
				nodes = anyReady
			}
			h.former = append(h.former, formerSlots{size: s.Size, nodes: nodes})
			k := len(h.former) - 1
			for range s.Slots {
				h.former[k].n++
				left := n.left()
				fits := h.fitsInto(&left, h.slots, 0)
				if h.former[k].n--; !fits {
					break
				}
				f.change(h, func() { h.former[k].n++ })
			}
			if h.former[k].n == 0 {
				h.former = h.former[:k]
			}
		}
		f.change(h, func() {}) // a holding of nothing goes
	}
	if len(c.seed) > 0 {
		c.seed = nil
		f.markDue(c)
	}
}
