package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Sums are sums over nodes. Of a claim of slots each is a number of slots, and Pods that number; of a claim of amounts
// it is an amount.
type Sums struct {
	// Desired is what is wanted and Held what there is. Used is what of it the claim's pods use; nothing of a claim
	// that is not inclusive. Missing is what is lacking.
	Desired, Held, Used, Missing ledger.Resources
}

// Report says how far a claim is met.
type Report struct {
	Sums
	// MissingOn is on how many nodes a part of an amount is missing.
	MissingOn int
	// Zones are those in which something is wanted or held, sorted by name.
	Zones []ZoneReport
	// Away are the nodes that were removed or ceased to be ready, Full those that became too full, if what was held
	// there has found no other place.
	Away, Full []string
	// Capped are the zones in which the limit on what is held keeps something from being held.
	Capped []string
	// FitsNoNode means that no node that the claim selects, however empty, could hold a slot.
	FitsNoNode bool
}

// ZoneReport says how far a claim is met in one zone.
type ZoneReport struct {
	Name string
	// Sums has as Desired what the zone should have for now, with slots shifted from lost zones.
	Sums
	// Unknown means that the zone has no node, Lost that it has none that may take slots.
	Unknown, Lost bool
	// Shortfall says what the zone lacks, and why: "3 of 10 slots: 41 nodes short of cpu, 3 tainted". It is empty
	// when it lacks nothing.
	Shortfall string
	// Nodes are those with slots, by name. Of a claim of amounts they are the nodes where something else is held than
	// is desired.
	Nodes []NodeReport
}

// NodeReport says what a claim has on one node, in the terms of Sums.
type NodeReport struct {
	Node       string
	Held, Used ledger.Resources
}

// SameHolds reports whether the same is held on the same nodes as in another report.
func (r *Report) SameHolds(other *Report) bool {
	return slices.EqualFunc(r.Zones, other.Zones, func(a, b ZoneReport) bool {
		return a.Name == b.Name && slices.EqualFunc(a.Nodes, b.Nodes, func(a, b NodeReport) bool {
			return a.Node == b.Node && a.Held.Equal(&b.Held)
		})
	})
}

// Shortfalls returns those of all zones in one line, or an empty string.
func (r *Report) Shortfalls() string {
	var all []string
	for _, z := range r.Zones {
		if z.Shortfall != "" {
			all = append(all, fmt.Sprintf("zone %s: %s", cmp.Or(z.Name, `""`), z.Shortfall))
		}
	}
	return strings.Join(all, "; ")
}

// Report returns how far a claim is met, by the last state of the nodes. It returns false for a claim that is unknown
// or has not been looked at yet.
func (p *Planner) Report(uid types.UID) (Report, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.claims[uid]
	if c == nil || !c.reconciled {
		return Report{}, false
	}
	p.countLocked(c)
	r := &reporter{planner: p, claim: c, zones: map[string]*zoneReport{}}
	nodes, _ := p.holds.Status(uid)
	known := make(map[string]bool, len(nodes))
	for i := range nodes {
		known[nodes[i].Node] = true
		r.addNode(&nodes[i])
	}
	if c.HasSlots() {
		r.addQuotas()
	} else {
		for name := range c.Nodes {
			if !known[name] {
				r.addNode(&holds.NodeStatus{Node: name})
			}
		}
	}
	r.Full = slices.Sorted(maps.Keys(c.wereTooFull))
	r.finish()
	return r.Report, true
}

// reporter makes a report.
type reporter struct {
	Report
	planner *Planner
	claim   *claimState
	zones   map[string]*zoneReport
}

// zoneReport is a report on a zone with the numbers of its nodes on which something is missing, by the reason.
type zoneReport struct {
	ZoneReport
	short, small, unmet, untaken map[string]int
}

func (r *reporter) zone(name string) *zoneReport {
	if r.zones[name] == nil {
		r.zones[name] = &zoneReport{
			ZoneReport: ZoneReport{Name: name},
			short:      map[string]int{}, small: map[string]int{}, unmet: map[string]int{}, untaken: map[string]int{},
		}
	}
	return r.zones[name]
}

// addNode adds what the claim has on a node and, of amounts, what it lacks there.
func (r *reporter) addNode(has *holds.NodeStatus) {
	c, n, zone := r.claim, r.planner.nodeLocked(has.Node), has.Zone
	if zone == "" && n != nil {
		zone = n.zone.name
	}
	node, z := NodeReport{Node: has.Node, Held: has.Amount}, r.zone(zone)
	if n != nil && c.Inclusive() {
		owned := n.ownedBy(c.UID)
		node.Used = has.Amount.Clone()
		node.Used.SetMin(&owned)
		if c.HasSlots() {
			node.Used = c.SlotsAmount(has.Slots() - c.UnusedSlots(has.Slots(), &owned))
		}
	}
	z.Held.Add(&node.Held, 1)
	z.Used.Add(&node.Used, 1)
	if c.HasSlots() {
		z.Nodes = append(z.Nodes, node)
		return
	}
	desired := c.Nodes[has.Node]
	z.Desired.Add(&desired, 1)
	if !has.Amount.Equal(&desired) {
		z.Nodes = append(z.Nodes, node)
	}
	missing := c.missingOn(has.Node, &has.Amount)
	if missing.IsZero() {
		return
	}
	z.Missing.Add(&missing, 1)
	r.MissingOn++
	if n == nil || ledger.Unready(n.object) {
		r.Away = append(r.Away, has.Node)
	}
	r.addReason(z, n, &desired, &missing, 0)
}

// addQuotas adds what the zones should have of a claim of slots, and why they lack some of it.
func (r *reporter) addQuotas() {
	c := r.claim
	for _, q := range c.quotas {
		z := r.zone(q.zone)
		z.Desired, z.Lost, z.Unknown = c.SlotsAmount(q.slots), q.lost, r.planner.ledgerNodes.zones[q.zone] == nil
		z.Missing = c.SlotsAmount(max(0, q.slots-int(z.Held.Pods)))
		if z.Missing.IsZero() || z.Unknown {
			continue
		}
		slots := map[string]int{}
		for i := range z.Nodes {
			slots[z.Nodes[i].Node] = int(z.Nodes[i].Held.Pods)
		}
		for n := r.planner.ledgerNodes.zones[q.zone].newest; n != nil; n = n.older {
			r.addReason(z, n, &c.Slot, &c.Slot, slots[n.name])
		}
	}
}

// addReason counts a node on which something is missing of a size: more has no room there, or is yet to be taken. The
// claim has slots there.
func (r *reporter) addReason(z *zoneReport, n *nodeRoom, size, more *ledger.Resources, slots int) {
	if n == nil {
		z.unmet["gone"]++
	} else if unmet := r.claim.Requirements.Unmet(n.object); unmet != "" {
		z.unmet[string(unmet)]++
	} else if lacks := size.Exceeds(&n.allocatable); lacks != "" {
		z.small["too small: "+resourceName(lacks)]++
	} else if lacks := more.Exceeds(r.planner.ledgerNodes.freeRoom(n)); lacks != "" {
		z.short["short of "+resourceName(lacks)]++
	} else if !r.claim.withinPerNode(n, slots) {
		z.short["with as many slots and owners as slotsPerNode allows"]++
	} else if r.claim.capped[z.Name] {
		z.untaken["with room that maxHeldFraction leaves to pods"]++
	} else {
		z.untaken["with room that is yet to be taken"]++
	}
}

// finish sums up the zones, and puts into words what they lack.
func (r *reporter) finish() {
	c := r.claim
	for _, name := range slices.Sorted(maps.Keys(r.zones)) {
		z := r.zones[name]
		slices.SortFunc(z.Nodes, func(a, b NodeReport) int { return cmp.Compare(a.Node, b.Node) })
		if !z.Missing.IsZero() {
			what := Words(&z.Missing) + " of " + Words(&z.Desired)
			if c.HasSlots() {
				what = fmt.Sprintf("%d of %d slots", z.Held.Pods, z.Desired.Pods)
			}
			z.Shortfall = what + ": " + sentence(z.short, z.small, z.unmet, z.untaken)
		}
		r.Desired.Add(&z.Desired, 1)
		r.Held.Add(&z.Held, 1)
		r.Used.Add(&z.Used, 1)
		r.Missing.Add(&z.Missing, 1)
		r.Zones = append(r.Zones, z.ZoneReport)
	}
	if !c.HasSlots() {
		slices.Sort(r.Away)
		r.Capped = slices.Sorted(maps.Keys(c.capped))
		return
	}
	r.Desired, r.Missing = c.SlotsAmount(c.total), c.SlotsAmount(max(0, c.total-int(r.Held.Pods)))
	r.Away = slices.Sorted(maps.Keys(c.away))
	for name := range c.capped {
		if c.quota(name) == nil || c.beyondQuota(name) < 0 || c.wantedInAnyZone() > 0 {
			r.Capped = append(r.Capped, name)
		}
	}
	slices.Sort(r.Capped)
	r.FitsNoNode = !r.Missing.IsZero() && r.planner.fitsNoNodeLocked(c)
}

// fitsNoNodeLocked reports whether there are nodes that the claim selects, and a slot is too large for each.
func (p *Planner) fitsNoNodeLocked(c *claimState) bool {
	selected := 0
	for _, n := range p.ledgerNodes.byName {
		if c.Requirements.Unmet(n.object) == NotSelected {
			continue
		}
		if selected++; c.Slot.Exceeds(&n.allocatable) == "" {
			return false
		}
	}
	return selected > 0
}
