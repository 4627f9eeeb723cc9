package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/internal/amount"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Amounts are sums over nodes.
type Amounts struct {
	// Desired is what is wanted, Held what is held on existing, ready nodes, the used part included, and Used what pods took of it.
	Desired, Held, Used ledger.Resources
	// Missing is what is lacking.
	Missing ledger.Resources
}

// Words puts an amount into words: "2500m cpu, 4Gi memory, 3 places for pods".
func Words(r *ledger.Resources) string {
	var parts []string
	for name := range r.Named() {
		if name != v1.ResourcePods {
			parts = append(parts, fmt.Sprintf("%s %s", amount.Quantity(name, r.Amount(name)), name))
		}
	}
	slices.SortFunc(parts, func(a, b string) int {
		_, a, _ = strings.Cut(a, " ")
		_, b, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	switch r.Pods {
	case 0:
	case 1:
		parts = append(parts, "1 place for a pod")
	default:
		parts = append(parts, fmt.Sprintf("%d places for pods", r.Pods))
	}
	return strings.Join(parts, ", ")
}

// zoneAmounts is what is found out about a zone.
type zoneAmounts struct {
	ZoneReport
	// short, small and unfit count the nodes on which a part is missing, by the reason.
	short, small, unfit map[string]int
}

// reportAmountsLocked is Report for a claim for amounts.
func (p *Planner) reportAmountsLocked(c *claimState) Report {
	nodes, _ := p.holds.Status(c.UID)
	r := Report{Full: slices.Sorted(maps.Keys(c.full)), Capped: slices.Sorted(maps.Keys(c.capped))}
	zones := map[string]*zoneAmounts{}
	known := make(map[string]bool, len(nodes))
	for i := range nodes {
		known[nodes[i].Node] = true
		p.reportNodeLocked(c, &nodes[i], zones, &r)
	}
	for name := range c.Nodes {
		if known[name] {
			continue
		}
		ns := holds.NodeStatus{Node: name}
		if n := p.nodeLocked(name); n != nil {
			ns.Zone = n.zone.name
		}
		p.reportNodeLocked(c, &ns, zones, &r)
	}
	slices.Sort(r.Away)
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		z := zones[name]
		slices.SortFunc(z.Nodes, func(a, b NodeReport) int { return cmp.Compare(a.Node, b.Node) })
		a := &z.Amounts
		if !a.Missing.IsZero() {
			z.Shortfall = fmt.Sprintf("%s of %s: %s", Words(&a.Missing), Words(&a.Desired), sentence(z.short, z.small, z.unfit))
		}
		z.Desired, z.Held, z.Used = int(a.Desired.Pods), int(a.Held.Pods), int(a.Used.Pods)
		r.Desired, r.Held, r.Used = r.Desired+z.Desired, r.Held+z.Held, r.Used+z.Used
		r.Amounts.Desired.Add(&a.Desired, 1)
		r.Amounts.Held.Add(&a.Held, 1)
		r.Amounts.Used.Add(&a.Used, 1)
		r.Amounts.Missing.Add(&a.Missing, 1)
		r.Zones = append(r.Zones, z.ZoneReport)
	}
	return r
}

// reportNodeLocked adds a node to the report of its zone.
func (p *Planner) reportNodeLocked(c *claimState, ns *holds.NodeStatus, zones map[string]*zoneAmounts, r *Report) {
	z := zones[ns.Zone]
	if z == nil {
		z = &zoneAmounts{ZoneReport: ZoneReport{Name: ns.Zone}, short: map[string]int{}, small: map[string]int{}, unfit: map[string]int{}}
		zones[ns.Zone] = z
	}
	desired, has := c.Nodes[ns.Node], p.nodeReportLocked(c, ns)
	if !has.Amount.Equal(&desired) {
		z.Nodes = append(z.Nodes, has)
	}
	z.Amounts.Desired.Add(&desired, 1)
	z.Amounts.Held.Add(&has.Amount, 1)
	z.Amounts.Used.Add(&has.UsedAmount, 1)
	missing := c.missingOn(ns.Node, &has.Amount)
	if missing.IsZero() {
		return
	}
	z.Amounts.Missing.Add(&missing, 1)
	r.Missing++
	n := p.nodeLocked(ns.Node)
	if n == nil || unready(n.object) {
		r.Away = append(r.Away, ns.Node)
	}
	if n == nil {
		z.unfit["gone"]++
	} else if why := c.Fit.Unfit(n.object); why != "" {
		z.unfit[string(why)]++
	} else if lacks := desired.Exceeds(&n.allocatable); lacks != "" {
		z.small["too small: "+resourceName(lacks)]++
	} else if lacks := missing.Exceeds(p.ledgerNodes.freeRoom(n)); lacks != "" {
		z.short["short of "+resourceName(lacks)]++
	} else {
		z.short[c.whyUntaken(ns.Zone)]++
	}
}
