package floor

import (
	"slices"

	"zonewise.dev/plugins/reservecache/ledger"
)

// holding is what one claim has on one node.
type holding struct {
	claim *claimState
	node  *node
	// owned is what the claim's owners on the node ask for, and used how many slots that takes up.
	owned ledger.Resources
	used  int
	// slots is how many whole slots there are. Of an inclusive claim those that owners take up are among them.
	slots int
	// former are slots that an edit of the claim has left behind, until the claim has others for them.
	former []formerSlots
	// unused is what is held: what owners leave of all of these.
	unused ledger.Resources
}

// formerSlots are slots of a size, or on a node, that the claim had before an edit.
type formerSlots struct {
	n    int
	size ledger.Resources
	// nodes are the requirements of that time.
	nodes *NodeRequirements
}

// covered is how many slots owners take up whose rest is held as well.
func (h *holding) covered() int {
	if !h.claim.Inclusive {
		return 0
	}
	return min(h.slots, h.used)
}

// free is how many slots no owner takes up.
func (h *holding) free() int { return h.slots - h.covered() }

// rests is how many slots could go whose rest alone is held. Owners would take up former slots in place of them, and so
// there are none beside those, nor beside free ones.
func (h *holding) rests() int {
	if h.free() > 0 || len(h.former) > 0 {
		return 0
	}
	return h.covered()
}

// filled is how many slots are there before a free one is: owners take up the first ones, also where they are more than
// their zone is to have.
func (h *holding) filled() int {
	if !h.claim.Inclusive {
		return h.slots
	}
	return max(h.slots, h.used)
}

// kept is how many former slots there are.
func (h *holding) kept() (n int) {
	for i := range h.former {
		n += h.former[i].n
	}
	return n
}

func (h *holding) empty() bool { return h.slots == 0 && h.used == 0 && len(h.former) == 0 }

// setOwned takes in what the claim's owners on the node ask for.
func (h *holding) setOwned(owned *ledger.Resources) {
	h.owned, h.used = owned.Clone(), owned.Covering(&h.claim.Slot)
}

// unusedWith is what would be held with other numbers of slots and of former slots, which are taken from the end.
func (h *holding) unusedWith(slots, fewer int) ledger.Resources {
	return h.claim.unusedOf(h.amount(slots, fewer), &h.owned)
}

// amount is what a number of slots, and the former slots but some of the last, are together.
func (h *holding) amount(slots, fewer int) ledger.Resources {
	sum := h.claim.Slot.Times(int64(slots))
	for i := len(h.former) - 1; i >= 0; i-- {
		k := &h.former[i]
		gone := min(fewer, k.n)
		fewer -= gone
		sum.Add(&k.size, int64(k.n-gone))
	}
	return sum
}

// unusedOf is what a claim's owners leave of an amount.
func (c *Claim) unusedOf(amount ledger.Resources, owned *ledger.Resources) ledger.Resources {
	if !c.Inclusive || owned.Pods == 0 {
		return amount
	}
	return amount.Beyond(owned)
}

// dropFormer drops the former slots that match.
func (h *holding) dropFormer(match func(*formerSlots) bool) {
	h.former = slices.DeleteFunc(h.former, func(k formerSlots) bool { return match(&k) })
}

// dropLastFormer drops some of the last former slots.
func (h *holding) dropLastFormer(n int) {
	for n > 0 && len(h.former) > 0 {
		k := &h.former[len(h.former)-1]
		gone := min(n, k.n)
		n -= gone
		if k.n -= gone; k.n == 0 {
			h.former = h.former[:len(h.former)-1]
		}
	}
}

// dropOne drops a former slot, or if there is none a slot.
func (h *holding) dropOne() {
	if len(h.former) > 0 {
		h.dropLastFormer(1)
	} else {
		h.slots--
	}
}

// frees reports whether dropOne would free some of what a node has less than nothing of.
func (h *holding) frees(room *ledger.Resources) bool {
	if h.slots == 0 && len(h.former) == 0 {
		return false
	}
	for name := range h.unused.Named() {
		if room.Amount(name) < 0 {
			return true
		}
	}
	return false
}

// goesBefore reports whether a holding loses its slots before another one does: one of a lower priority, of one priority
// slots that could be elsewhere before what owners leave of theirs, and of these the youngest.
func (h *holding) goesBefore(other *holding) bool {
	if h.claim.Priority != other.claim.Priority {
		return h.claim.Priority < other.claim.Priority
	}
	if h.leftByOwners() != other.leftByOwners() {
		return other.leftByOwners()
	}
	return h.claim.Compare(&other.claim.Claim) > 0
}

// leftByOwners reports whether nothing is held but what owners leave of their slots.
func (h *holding) leftByOwners() bool { return h.free() == 0 && len(h.former) == 0 }

func (f *Floor) newHolding(c *claimState, n *node) *holding {
	h := &holding{claim: c, node: n}
	n.holdings = append(n.holdings, h)
	c.holdings[n] = h
	return h
}

// change changes a holding, and everything that is counted of it. A holding of nothing goes.
func (f *Floor) change(h *holding, edit func()) {
	c, n := h.claim, h.node
	unused := h.unused
	h.count(-1)
	edit()
	h.unused = h.unusedWith(h.slots, 0)
	h.count(1)
	if h.empty() {
		n.holdings = slices.DeleteFunc(n.holdings, func(other *holding) bool { return other == h })
		delete(c.holdings, n)
	}
	if !h.unused.Equal(&unused) {
		more := h.unused.Minus(&unused)
		n.held.Add(&more, 1)
		n.zone.held.Add(&more, 1)
		n.setRoom()
		if unused.Exceeds(&h.unused) != "" {
			f.uncap(n.zone)
		}
	}
	n.lowest = lowestPriority(n.holdings)
	f.touch(c)
	n.version = f.version
	f.review(c)
}

// count adds a holding to what is counted of its claim, or takes it off.
func (h *holding) count(sign int) {
	c, z := h.claim, h.claim.zone(h.node.zone.name)
	z.unused += sign * h.free()
	if c.Inclusive {
		z.used += sign * h.used
		z.covered += sign * h.covered()
		z.rests += sign * h.rests()
	}
	c.kept += sign * h.kept()
	c.keptCost += sign * h.keptCost(h.slots)
	if sign > 0 && c.Inclusive && h.used > h.slots {
		c.partly[h.node] = h
	} else {
		delete(c.partly, h.node)
	}
}

// lowestPriority is that of the claims that hold something.
func lowestPriority(holdings []*holding) int32 {
	lowest := int32(1<<31 - 1)
	for _, h := range holdings {
		lowest = min(lowest, h.claim.Priority)
	}
	return lowest
}
