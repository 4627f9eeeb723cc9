package floor

import (
	"maps"
	"slices"
)

// Clone returns a Floor that holds the same and goes on as this one would. Changes of one do not reach the other. It
// may be called where nothing changes the Floor meanwhile.
func (f *Floor) Clone() *Floor {
	out := New(f.fraction)
	out.nodesChanged, out.version = f.nodesChanged, f.version
	claims := make(map[*claimState]*claimState, len(f.order))
	for _, c := range f.order {
		copied := *c
		copied.holdings, copied.partly = make(map[*node]*holding, len(c.holdings)), make(map[*node]*holding, len(c.partly))
		copied.usable = make(map[string]*node, len(c.usable))
		copied.zones = make(map[string]*zoneState, len(c.zones))
		for name, z := range c.zones {
			state := *z
			copied.zones[name] = &state
		}
		claims[c] = &copied
		out.byUID[c.UID], out.order = &copied, append(out.order, &copied)
	}
	for name, z := range f.zones {
		copied := &zone{
			name: name, nodes: make(map[string]*node, len(z.nodes)), capped: make(map[*claimState]bool, len(z.capped)),
			allocatable: z.allocatable.Clone(), held: z.held.Clone(),
		}
		for c := range z.capped {
			copied.capped[claims[c]] = true
		}
		out.zones[name] = copied
	}
	for name, n := range f.nodes {
		copied := *n
		copied.zone = out.zones[n.zone.name]
		copied.allocatable, copied.free, copied.nominated = n.allocatable.Clone(), n.free.Clone(), n.nominated.Clone()
		copied.held, copied.room = n.held.Clone(), n.room.Clone()
		copied.holdings = make([]*holding, len(n.holdings))
		for i, h := range n.holdings {
			held := *h
			held.claim, held.node = claims[h.claim], &copied
			held.owned, held.unused = h.owned.Clone(), h.unused.Clone()
			held.former = append([]formerSlots(nil), h.former...)
			copied.holdings[i], held.claim.holdings[&copied] = &held, &held
			if h.claim.partly[n] != nil {
				held.claim.partly[&copied] = &held
			}
		}
		out.nodes[name], copied.zone.nodes[name] = &copied, &copied
	}
	for _, n := range f.gained {
		if copied := out.nodes[n.name]; copied != nil && f.nodes[n.name] == n {
			out.gained = append(out.gained, copied)
		}
	}
	for _, c := range f.order {
		for zone, n := range c.usable {
			if n != nil && f.nodes[n.name] == n { // and not gone
				claims[c].usable[zone] = out.nodes[n.name]
			}
		}
		claims[c].desired = maps.Clone(c.desired)
	}
	return out
}

// RemoveOthers forgets the nodes that are not among those of these names.
func (f *Floor) RemoveOthers(names map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		if !names[name] {
			f.Remove(name)
		}
	}
}
