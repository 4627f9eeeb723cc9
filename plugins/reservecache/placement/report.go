package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Report says how far a claim is met.
type Report struct {
	// Desired is how many slots are wanted, Held how many there are, and Used how many of these the claim's pods use; none of a claim
	// that is not inclusive. Missing is how many are lacking.
	// Of amounts the first three count places for pods, and Missing the nodes on which a part is lacking.
	Desired, Held, Used, Missing int
	// Amounts are the sums of a claim for amounts.
	Amounts Amounts
	// Zones are those in which slots are wanted or held, sorted by name.
	Zones []ZoneReport
	// Away are the nodes that were removed or ceased to be ready, Full those that became too full, if their slots have found no
	// other place.
	Away, Full []string
	// Capped are the zones in which the limit on what is held keeps slots from being placed.
	Capped []string
	// FitsNoNode means that no node that the claim selects, however empty, could hold a slot.
	FitsNoNode bool
}

// ZoneReport says how far a claim is met in one zone.
type ZoneReport struct {
	Name string
	// Desired is how many slots the zone should have for now, with those shifted from lost zones.
	Desired, Held, Used int
	Amounts             Amounts
	// Unknown means that the zone has no node, Lost that it has none that may take slots.
	Unknown, Lost bool
	// Shortfall says what the zone lacks, and why: "3 of 10 slots: 41 nodes short of cpu, 3 tainted". It is empty when it
	// lacks nothing.
	Shortfall string
	// Nodes are those with slots, by name. Of a claim for amounts they are the nodes where something else is held than is desired.
	Nodes []NodeReport
}

// NodeReport says what a claim has on one node.
type NodeReport struct {
	Node string
	// Slots is how many slots there are, and Used how many of them the claim's pods use.
	Slots, Used int
	// Amount is all that is held, and UsedAmount what of it the claim's pods ask for.
	Amount, UsedAmount ledger.Resources
}

// SameHolds reports whether the same is held on the same nodes as in another report.
func (r *Report) SameHolds(other *Report) bool {
	return slices.EqualFunc(r.Zones, other.Zones, func(a, b ZoneReport) bool {
		return a.Name == b.Name && slices.EqualFunc(a.Nodes, b.Nodes, func(a, b NodeReport) bool {
			return a.Node == b.Node && a.Amount.Equal(&b.Amount)
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

// Report returns how far a claim is met, by the last state of the nodes. It returns false for a claim that is unknown or has
// not been looked at yet.
func (p *Planner) Report(uid types.UID) (Report, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.claims[uid]
	if c == nil || !c.reconciled {
		return Report{}, false
	}
	if !c.HasSlots() {
		return p.reportAmountsLocked(c), true
	}
	p.countLocked(c)
	nodes, _ := p.holds.Status(uid)
	zones := map[string]*ZoneReport{}
	zone := func(name string) *ZoneReport {
		if zones[name] == nil {
			zones[name] = &ZoneReport{Name: name}
		}
		return zones[name]
	}
	for _, q := range c.quotas {
		*zone(q.zone) = ZoneReport{Name: q.zone, Desired: q.slots, Lost: q.lost, Unknown: p.ledgerNodes.zones[q.zone] == nil}
	}
	r := Report{
		Desired: c.total, Missing: max(0, c.total-c.slotsInAllZones()),
		Away: slices.Sorted(maps.Keys(c.away)), Full: slices.Sorted(maps.Keys(c.full)),
	}
	for i := range nodes {
		z, n := zone(nodes[i].Zone), p.nodeReportLocked(c, &nodes[i])
		z.Nodes = append(z.Nodes, n)
		z.Held, z.Used = z.Held+n.Slots, z.Used+n.Used
		r.Held, r.Used = r.Held+n.Slots, r.Used+n.Used
	}
	for name := range c.capped {
		if has := c.slotsIn(name); c.quota(name) == nil || has < c.quota(name).slots || c.missingInAnyZone() > 0 {
			r.Capped = append(r.Capped, name)
		}
	}
	slices.Sort(r.Capped)
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		z := zones[name]
		if has := c.slotsIn(name); has < z.Desired {
			z.Shortfall = fmt.Sprintf("%d of %d slots: %s", has, z.Desired, p.reasonsLocked(c, z))
		}
		r.Zones = append(r.Zones, *z)
	}
	r.FitsNoNode = r.Missing > 0 && p.fitsNoNodeLocked(c)
	return r, true
}

// nodeReportLocked says what a claim has on a node.
func (p *Planner) nodeReportLocked(c *claimState, has *holds.NodeStatus) NodeReport {
	r := NodeReport{Node: has.Node, Slots: has.Slots(), Amount: has.Amount}
	if n := p.nodeLocked(has.Node); n != nil && c.Inclusive() {
		r.UsedAmount = has.Amount.Clone()
		owned := n.ownedBy(c.UID)
		r.UsedAmount.Lower(&owned)
		r.Used = int(r.UsedAmount.Pods)
		if c.HasSlots() {
			r.Used = r.Slots - c.UnusedSlots(r.Slots, &owned)
		}
	}
	return r
}

// reasonsLocked says why the nodes of a zone take no slots.
func (p *Planner) reasonsLocked(c *claimState, report *ZoneReport) string {
	z := p.ledgerNodes.zones[report.Name]
	if z == nil {
		return "no nodes"
	}
	has := map[string]int{}
	for i := range report.Nodes {
		has[report.Nodes[i].Node] = report.Nodes[i].Slots
	}
	lacking, small, unfit := map[string]int{}, map[string]int{}, map[string]int{}
	room := 0
	for n := z.newest; n != nil; n = n.older {
		if unsuitable := c.Fit.Unfit(n.object); unsuitable != "" {
			unfit[string(unsuitable)]++
			continue
		}
		slot := &c.Slot
		if lacks := slot.Exceeds(&n.allocatable); lacks != "" {
			small["too small: "+resourceName(lacks)]++
		} else if lacks := slot.Exceeds(p.ledgerNodes.freeRoom(n)); lacks != "" {
			lacking["short of "+resourceName(lacks)]++
		} else if !c.withinPerNode(n, has[n.name]) {
			lacking["with as many slots and owners as slotsPerNode allows"]++
		} else {
			room++
		}
	}
	rest := map[string]int{}
	if room > 0 {
		rest[c.whyUntaken(report.Name)] = room
	}
	return sentence(lacking, small, unfit, rest)
}

// whyUntaken says why room of a zone is not taken.
func (c *claimState) whyUntaken(zone string) string {
	if c.capped[zone] {
		return "with room that maxHeldFraction leaves to pods"
	}
	return "with room that is yet to be taken"
}

// sentence puts numbers of nodes by reason into words, one group after the other.
func sentence(groups ...map[string]int) string {
	var parts []string
	for _, group := range groups {
		parts = append(parts, byNumber(group)...)
	}
	if len(parts) == 0 {
		return "no nodes"
	}
	// "41 nodes short of cpu, 3 tainted"
	number, rest, _ := strings.Cut(parts[0], " ")
	noun := "nodes"
	if number == "1" {
		noun = "node"
	}
	parts[0] = number + " " + noun + " " + rest
	return strings.Join(parts, ", ")
}

// byNumber puts counted reasons into words, the most frequent first.
func byNumber(reasons map[string]int) []string {
	parts := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), strings.Compare(a, b))
	})
	for i, reason := range parts {
		parts[i] = fmt.Sprintf("%d %s", reasons[reason], reason)
	}
	return parts
}

func resourceName(name v1.ResourceName) string {
	if name == v1.ResourcePods {
		return "room for pods"
	}
	return string(name)
}

// fitsNoNodeLocked reports whether there are nodes that the claim selects, and a slot is too large for each.
func (p *Planner) fitsNoNodeLocked(c *claimState) bool {
	selected := 0
	for _, z := range p.ledgerNodes.zones {
		for n := z.newest; n != nil; n = n.older {
			if c.Fit.Unfit(n.object) == NotSelected {
				continue
			}
			if selected++; c.Slot.Exceeds(&n.allocatable) == "" {
				return false
			}
		}
	}
	return selected > 0
}
