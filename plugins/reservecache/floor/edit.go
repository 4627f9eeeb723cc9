package floor

import (
	"maps"
	"slices"

	"zonewise.dev/plugins/reservecache/ledger"
)

// An edit of a claim gives nothing up before its new target has room: slots of another size, or on nodes that may not
// have them any more, become former slots. Each slot that finds room takes former ones off, on its own node first, and
// no more are kept than what is missing is worth.

// same reports whether a claim is as before.
func (c *claimState) same(to *Claim) bool {
	return c.Name == to.Name && c.Created.Equal(to.Created) && c.Priority == to.Priority && c.Slot.Equal(&to.Slot) && c.PerNode == to.PerNode &&
		c.Inclusive == to.Inclusive && c.Required == to.Required && c.Nodes.key == to.Nodes.key && c.Slots == to.Slots &&
		(c.Zones == nil) == (to.Zones == nil) && maps.Equal(c.Zones, to.Zones)
}

// edit replaces a claim and keeps its slots.
func (f *Floor) edit(c *claimState, to *Claim) {
	holdings := slices.Collect(maps.Values(c.holdings))
	for _, h := range holdings {
		h.node.held.Add(&h.unused, -1)
		h.node.zone.held.Add(&h.unused, -1)
	}
	before := c.Claim
	c.Claim = *to
	c.Seed = nil
	c.zones, c.partly, c.kept, c.keptCost = map[string]*zoneState{}, map[*node]*holding{}, 0, 0
	for _, h := range holdings {
		h.edit(&before)
		h.unused = h.unusedWith(h.slots, 0)
		h.node.held.Add(&h.unused, 1)
		h.node.zone.held.Add(&h.unused, 1)
		h.node.setRoom()
		h.node.lowest = lowestPriority(h.node.holdings)
		h.count(1)
		f.markGained(h.node)
	}
	for _, z := range f.zones {
		delete(z.capped, c)
	}
	c.desired = nil
	f.setDesired(c)
	f.touch(c)
	f.markDue(c)
	for _, h := range holdings {
		f.dropExcess(h.node, nil)
		f.uncap(h.node.zone) // less may be held than before
	}
}

// edit turns slots that are not what the claim asks for now into former ones.
func (h *holding) edit(before *Claim) {
	c := h.claim
	if before.Inclusive && !c.Inclusive {
		h.slots -= min(h.slots, h.used) // what owners take up is not beside them
	}
	former := 0
	switch {
	case !before.Slot.Equal(&c.Slot), !c.Nodes.MetBy(h.node.object):
		former = h.slots
	case c.PerNode > 0:
		former = min(h.slots, max(0, h.slots+h.beside()-c.PerNode))
	}
	if former > 0 {
		h.slots -= former
		h.former = append(h.former, formerSlots{n: former, size: before.Slot, nodes: before.Nodes})
	}
	h.used = h.owned.Covering(&c.Slot)
}

// beside is how many owners count beside the slots of the node.
func (h *holding) beside() int {
	if h.claim.Inclusive {
		return 0
	}
	return int(h.owned.Pods)
}

// costOf is how many slots a former one stands for, in thousandths: at most one, and fewer if the present slots are
// larger, so that as much is kept as is missing.
func (c *Claim) costOf(size *ledger.Resources) int {
	cost := int64(1000)
	for name := range size.Named() {
		if now := c.Slot.Amount(name); now > size.Amount(name) {
			cost = min(cost, size.Amount(name)*1000/now)
		}
	}
	return int(cost)
}

// keptCost is how many slots the former ones of a node stand for, in thousandths, if it has so many slots. Those that
// owners take up stand for none.
func (h *holding) keptCost(slots int) (cost int) {
	taken := 0
	if h.claim.Inclusive {
		taken = max(0, h.used-slots)
	}
	for i := range h.former {
		k := &h.former[i]
		spared := min(taken, k.n)
		taken -= spared
		cost += (k.n - spared) * max(1, h.claim.costOf(&k.size))
	}
	return cost
}

// excess is by how much the former slots stand for more than what is missing once so many are placed on a node.
func (h *holding) excess(placed int) int {
	c, missing := h.claim, max(0, h.claim.missing())
	if !c.Inclusive || h.slots >= h.used {
		missing = max(0, missing-placed) // no owner takes them up
	}
	return c.keptCost - h.keptCost(h.slots) + h.keptCost(h.slots+placed) - 1000*missing
}

// exchanged is how many of the former slots of a node go when so many are placed there.
func (h *holding) exchanged(placed int) (n int) {
	if len(h.former) == 0 {
		return 0
	}
	excess := h.excess(placed)
	for i := len(h.former) - 1; i >= 0 && excess > 0; i-- {
		k := &h.former[i]
		cost := max(1, h.claim.costOf(&k.size))
		gone := min(k.n, (excess+cost-1)/cost)
		n += gone
		excess -= gone * cost
	}
	return n
}

// trimFormer drops former slots for which the claim has others.
func (f *Floor) trimFormer(c *claimState) {
	if c.keptCost <= 1000*max(0, c.missing()) {
		return
	}
	holdings := slices.DeleteFunc(c.sorted(), func(h *holding) bool { return len(h.former) == 0 })
	for _, lacking := range []bool{false, true} { // those of zones that lack no slots go first
		for _, h := range slices.Backward(holdings) {
			zone := h.node.zone.name
			if lacks := c.zone(zone).unused < c.wanted(zone); lacks != lacking {
				continue
			}
			if n := h.exchanged(0); n > 0 {
				f.change(h, func() { h.dropLastFormer(n) })
				f.markGained(h.node)
			}
		}
	}
}
