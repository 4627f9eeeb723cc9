package floor

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Report says what a claim has.
type Report struct {
	Claim Claim
	// Version changes with everything else.
	Version uint64
	Counts
	// Zones are sorted by name.
	Zones []ZoneReport
	// Kept are the former slots, sorted by node.
	Kept []Seed
	// Fits means that some node that may have slots is large enough for one, were it empty.
	Fits bool
}

// Counts are numbers of slots.
type Counts struct {
	// Desired is how many there are to be, Held how many there are, those that owners take up among them, and Used how
	// many these are. Slots of headroom are not used.
	Desired, Held, Used int
}

// ZoneReport is one zone of a Report.
type ZoneReport struct {
	Name string
	Counts
	// Usable is how many nodes may have slots, counted if the claim lacks some, and Unknown means that the zone has no
	// node.
	Usable  int
	Unknown bool
	// Capped means that the limit keeps the claim from more.
	Capped bool
	Nodes  []NodeReport
}

// NodeReport is one node of a Report: its whole slots, and those that owners take up.
type NodeReport struct {
	Name        string
	Slots, Used int
}

// VersionOf returns that of what Report says of a claim; 0 if there is no such claim.
func (f *Floor) VersionOf(uid types.UID) uint64 {
	if c := f.byUID[uid]; c != nil {
		return c.version
	}
	return 0
}

// SameSlots reports whether two reports have the same slots on the same nodes.
func (r *Report) SameSlots(other *Report) bool {
	return r.Claim.Slot.Equal(&other.Claim.Slot) && slices.EqualFunc(r.Kept, other.Kept, func(a, b Seed) bool {
		return a.Node == b.Node && a.Slots == b.Slots && a.Size.Equal(&b.Size)
	}) && slices.EqualFunc(r.Zones, other.Zones, func(a, b ZoneReport) bool {
		return a.Name == b.Name && slices.EqualFunc(a.Nodes, b.Nodes, func(a, b NodeReport) bool { return a.Name == b.Name && a.Slots == b.Slots })
	})
}

// Same reports whether two reports say the same.
func (r *Report) Same(other *Report) bool {
	return r.Counts == other.Counts && r.Fits == other.Fits && r.SameSlots(other) && slices.EqualFunc(r.Zones, other.Zones, func(a, b ZoneReport) bool {
		return a.Counts == b.Counts && a.Usable == b.Usable && a.Unknown == b.Unknown && a.Capped == b.Capped && slices.Equal(a.Nodes, b.Nodes)
	})
}

// Report returns what a claim has; false if there is no such claim.
func (f *Floor) Report(uid types.UID) (*Report, bool) {
	c := f.byUID[uid]
	if c == nil {
		return nil, false
	}
	r := &Report{Claim: c.Claim, Version: c.version}
	zones := map[string]*ZoneReport{}
	for zone, desired := range c.desired {
		zones[zone] = &ZoneReport{Name: zone, Counts: Counts{Desired: desired}}
	}
	for zone, z := range c.zones {
		used := min(z.used, c.desired[zone])
		if zones[zone] == nil && z.unused+used > 0 {
			zones[zone] = &ZoneReport{Name: zone}
		}
		if to := zones[zone]; to != nil {
			to.Held, to.Used, to.Capped = z.unused+used, used, f.capped(c, zone)
		}
	}
	for _, h := range c.sorted() {
		if h.slots > 0 {
			z := zones[h.node.zone.name]
			if z == nil {
				z = &ZoneReport{Name: h.node.zone.name}
				zones[z.Name] = z
			}
			z.Nodes = append(z.Nodes, NodeReport{h.node.name, h.slots, h.covered()})
		}
		for i := range h.former {
			r.Kept = append(r.Kept, Seed{h.node.name, h.former[i].n, h.former[i].size})
		}
	}
	for _, z := range zones {
		r.Desired, r.Held, r.Used = r.Desired+z.Desired, r.Held+z.Held, r.Used+z.Used
		r.Zones = append(r.Zones, *z)
	}
	if c.Zones == nil {
		r.Desired = c.Slots
	}
	slices.SortFunc(r.Zones, func(a, b ZoneReport) int { return cmp.Compare(a.Name, b.Name) })
	if r.Held < r.Desired {
		f.reportNodes(c, r)
	}
	return r, true
}

// reportNodes says which nodes may have slots of a claim that lacks some.
func (f *Floor) reportNodes(c *claimState, r *Report) {
	for i := range r.Zones {
		z := f.zones[r.Zones[i].Name]
		if z == nil {
			r.Zones[i].Unknown = true
			continue
		}
		for _, n := range z.nodes {
			if c.Nodes.MetBy(n.object) {
				r.Zones[i].Usable++
				r.Fits = r.Fits || c.Slot.Exceeds(&n.allocatable) == ""
			}
		}
	}
}

// KeptSlots is how many former slots there are.
func (r *Report) KeptSlots() (n int) {
	for i := range r.Kept {
		n += r.Kept[i].Slots
	}
	return n
}

// Seed returns what a Floor that is new is to hold again, see [Claim].
func (r *Report) Seed() []Seed {
	seed := slices.Clone(r.Kept)
	for i := range r.Zones {
		for _, n := range r.Zones[i].Nodes {
			seed = append(seed, Seed{n.Name, n.Slots, r.Claim.Slot})
		}
	}
	return seed
}

// Held returns what is held unused in each zone.
func (f *Floor) Held() map[string]ledger.Resources {
	held := make(map[string]ledger.Resources, len(f.zones))
	for name, z := range f.zones {
		held[name] = z.held.Clone()
	}
	return held
}

// HeldOn returns what is held unused on each node on which something is.
func (f *Floor) HeldOn() map[string]ledger.Resources {
	held := map[string]ledger.Resources{}
	for name, n := range maps.All(f.nodes) {
		if len(n.holdings) > 0 {
			held[name] = n.held.Clone()
		}
	}
	return held
}

// ChangedSince returns the nodes on which something else has been held since the floor had a version, also those on which
// it is the same again.
func (f *Floor) ChangedSince(version uint64) (names []string) {
	for name, n := range f.nodes {
		if n.version > version {
			names = append(names, name)
		}
	}
	return names
}
