package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Report is how a demand stands.
type Report struct {
	Claim ledger.Claim
	// Desired is how many slots are wanted, Held how many there are, used ones among them, and Used how many
	// of these a pod uses. Missing is how many are lacking; in Headroom mode a used slot does not count.
	Desired, Held, Used, Missing int
	// Zones are sorted by name: those in which slots are wanted and those in which there are any.
	Zones []ZoneReport
	// Overcommitted are the nodes on which slots have no room, sorted.
	Overcommitted []string
	// FitsNoNode means that no node that the demand selects, however empty, could hold a slot.
	FitsNoNode bool
	// WaitsFor is the name of the older gang that collects capacity first; empty when there is none or
	// nothing is missing.
	WaitsFor string
}

// ZoneReport is how a demand stands in one zone.
type ZoneReport struct {
	Name string
	// Desired is how many slots the zone is to have for now, with those of lost zones that have been shifted
	// to it; Own is how many it is to have when no zone is lost.
	Desired, Own, Held, Used int
	// Unknown means that the zone has no node, Lost that it has none that may take slots.
	Unknown, Lost bool
	// Shortfall says what the zone lacks, and why: "3 of 10 slots: 41 nodes short of cpu, 3 tainted". It is
	// empty when it lacks nothing.
	Shortfall string
	Nodes     []NodeReport
}

// NodeReport is the slots on one node.
type NodeReport struct {
	Name        string
	Slots, Used int
}

// Shortfalls puts those of all zones into one line, and is empty when nothing is lacking.
func (r *Report) Shortfalls() string {
	var all []string
	for _, z := range r.Zones {
		if z.Shortfall != "" {
			all = append(all, fmt.Sprintf("zone %s: %s", cmp.Or(z.Name, `""`), z.Shortfall))
		}
	}
	return strings.Join(all, "; ")
}

// Report tells how a demand stands by what the ledger knows now, and false for one that is not known. The
// reasons are those of the last Reconcile.
func (k *Keeper) Report(id ledger.ClaimID) (Report, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.demands[id]
	if d == nil {
		return Report{}, false
	}
	status, ok := k.ledger.Claim(id)
	if !ok {
		return Report{}, false
	}
	r := Report{Claim: status.Claim, Desired: d.wanted(), Held: status.Slots, Used: status.Used, Missing: status.Missing}
	dr := newDraft(k.own, &d.Demand, d.known, &status)
	zones := map[string]*ZoneReport{}
	for _, q := range dr.quotas {
		zones[q.zone] = &ZoneReport{Name: q.zone, Desired: q.slots, Own: q.own, Lost: q.lost, Unknown: k.own.zones[q.zone] == nil}
	}
	for _, h := range status.Holds {
		p := dr.places[h.Node]
		z := zones[p.zone]
		if z == nil {
			z = &ZoneReport{Name: p.zone}
			zones[p.zone] = z
		}
		z.Held += p.slots
		z.Used += p.used
		z.Nodes = append(z.Nodes, NodeReport{Name: h.Node, Slots: p.slots, Used: p.used})
		if h.Excess > 0 {
			r.Overcommitted = append(r.Overcommitted, h.Node)
		}
	}
	for _, z := range zones {
		// Slots of a lost zone that were shifted are another zone's to lack.
		if has := dr.counted[z.Name]; has < z.Desired {
			z.Shortfall = fmt.Sprintf("%d of %d slots: %s", has, z.Desired, k.own.reasons(z.Name, dr))
		}
		r.Zones = append(r.Zones, *z)
	}
	slices.SortFunc(r.Zones, func(a, b ZoneReport) int { return strings.Compare(a.Name, b.Name) })
	r.FitsNoNode = k.own.fitsNoNode(dr)
	if r.Missing > 0 {
		r.WaitsFor = k.ledger.WaitsFor(id)
	}
	return r, true
}

// reasons says why the nodes of a zone take no slots.
func (b *board) reasons(zone string, dr *draft) string {
	nodes := b.zones[zone]
	if len(nodes) == 0 {
		return "no nodes"
	}
	short, small, unfit := map[string]int{}, map[string]int{}, map[string]int{}
	room := 0
	for _, e := range nodes {
		if why := dr.nodes.unfit[e.index]; why != "" {
			unfit[string(why)]++
			continue
		}
		switch name, evenEmpty := e.lack(&dr.size); {
		case name == "":
			room++
		case evenEmpty:
			small["too small: "+resourceName(name)]++
		default:
			short["short of "+resourceName(name)]++
		}
	}
	var parts []string
	for _, group := range []map[string]int{short, small, unfit} {
		parts = append(parts, byNumber(group)...)
	}
	if room > 0 {
		parts = append(parts, fmt.Sprintf("%d with room that is yet to be taken", room))
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
	var parts []string
	for why := range reasons {
		parts = append(parts, why)
	}
	slices.SortFunc(parts, func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), strings.Compare(a, b))
	})
	for i, why := range parts {
		parts[i] = fmt.Sprintf("%d %s", reasons[why], why)
	}
	return parts
}

func resourceName(name v1.ResourceName) string {
	if name == v1.ResourcePods {
		return "room for pods"
	}
	return string(name)
}

// lack names a resource of which a node has too little for a slot, and whether it has even when it is empty.
func (e *entry) lack(size *ledger.Resources) (name v1.ResourceName, evenEmpty bool) {
	if name = size.Exceeds(&e.allocatable); name != "" {
		return name, true
	}
	return size.Exceeds(&e.room), false
}

// fitsNoNode reports whether there are nodes that the demand selects, and a slot is too large for each.
func (b *board) fitsNoNode(dr *draft) bool {
	selected := 0
	for _, e := range b.entries {
		if dr.nodes.unfit[e.index] == NotSelected {
			continue
		}
		selected++
		if dr.size.Exceeds(&e.allocatable) == "" {
			return false
		}
	}
	return selected > 0
}
