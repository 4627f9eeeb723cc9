package floor

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Floor is the slots of all claims. Make one with New. It is not synchronized: Update, Remove, SetClaims and Settle
// change it, all else may be called from several goroutines meanwhile.
type Floor struct {
	// fraction is how much of what a zone offers may be held unused, of each resource.
	fraction float64
	byUID    map[types.UID]*claimState
	// order is the claims by age, the oldest first.
	order []*claimState
	nodes map[string]*node
	zones map[string]*zone
	// gained are the nodes that have got room for slots since Settle looked at them.
	gained []*node
	// nodesChanged means that nodes have come, gone, or may have other slots than before.
	nodesChanged bool
	// version counts changes of what claims have.
	version uint64
}

// New returns a Floor without claims and nodes. fraction bounds what is held unused in a zone: that part of what its
// nodes offer, of each resource; 1 is no bound.
func New(fraction float64) *Floor {
	return &Floor{
		fraction: fraction, byUID: map[types.UID]*claimState{}, nodes: map[string]*node{}, zones: map[string]*zone{},
	}
}

// SetClaims replaces the claims. Of one that was there before, the slots stay: those of another size than now, or on
// nodes that may not have them any more, until the claim has others in their stead. One that is new is given what its
// Seed says, as far as there is room, when Settle is next called.
func (f *Floor) SetClaims(claims []Claim) {
	now := make(map[types.UID]bool, len(claims))
	for i := range claims {
		to := &claims[i]
		now[to.UID] = true
		if c := f.byUID[to.UID]; c == nil {
			f.add(to)
		} else if !c.same(to) {
			f.edit(c, to)
		}
	}
	f.order = slices.DeleteFunc(f.order, func(c *claimState) bool {
		if now[c.UID] {
			return false
		}
		f.drop(c)
		return true
	})
	slices.SortFunc(f.order, func(a, b *claimState) int { return a.Compare(&b.Claim) })
}

func (f *Floor) add(to *Claim) {
	c := newClaimState(to)
	f.byUID[c.UID] = c
	f.order = append(f.order, c)
	f.setDesired(c)
	f.markDue(c)
}

// drop forgets a claim, and what it has.
func (f *Floor) drop(c *claimState) {
	for _, h := range slices.Collect(maps.Values(c.holdings)) {
		f.change(h, func() { h.slots, h.former, h.used = 0, nil, 0 })
		f.markGained(h.node)
	}
	for _, z := range f.zones {
		delete(z.capped, c)
	}
	delete(f.byUID, c.UID)
	f.version++
}

// review has Settle look at a claim that is not in order, at its next call.
func (f *Floor) review(c *claimState) {
	if c.inOrder() {
		f.close(c)
	} else {
		f.markDue(c)
	}
}

// touch notes that a claim has something else than before.
func (f *Floor) touch(c *claimState) {
	f.version++
	c.version = f.version
}

func (f *Floor) markDue(c *claimState) { c.open, c.due = true, true }

// close notes that a claim has all that it wants: from now on nodes that get room are not looked at.
func (f *Floor) close(c *claimState) {
	if !c.open {
		return
	}
	c.open, c.due = false, false
	for _, z := range c.zones {
		z.searched = false
	}
	for _, z := range f.zones {
		delete(z.capped, c)
	}
}

// setDesired computes how many slots a claim is to have in each zone.
func (f *Floor) setDesired(c *claimState) {
	desired := c.Zones
	if desired == nil {
		desired = map[string]int{}
		if zones := f.usableZones(c); len(zones) > 0 {
			desired = apportion(c.Slots, zones)
		}
	}
	if !maps.Equal(desired, c.desired) {
		c.desired = desired
		f.touch(c)
		f.review(c)
	}
}

// usableZones are the zones that have a node which may have slots of a claim, sorted by name.
func (f *Floor) usableZones(c *claimState) (zones []string) {
	for name, z := range f.zones {
		n := c.usable[name]
		if n == nil || z.nodes[n.name] != n || !c.Nodes.MetBy(n.object) {
			n = c.usableNode(z)
			c.usable[name] = n
		}
		if n != nil {
			zones = append(zones, name)
		}
	}
	slices.Sort(zones)
	return zones
}

// usableNode returns a node of a zone that may have slots; nil without one.
func (c *claimState) usableNode(z *zone) *node {
	for _, n := range z.nodes {
		if c.Nodes.MetBy(n.object) {
			return n
		}
	}
	return nil
}

// Version changes with what any Report says.
func (f *Floor) Version() uint64 { return f.version }
