package placement

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// LossPolicy says what happens to the slots of a zone that no longer has a node for them.
type LossPolicy int

// The policies.
const (
	// Shift means that they are held in the claim's other zones until the zone is back.
	Shift LossPolicy = iota
	// Keep means that they are not held until the zone is back.
	Keep
)

// Zone is a number of slots in a zone.
type Zone struct {
	Name  string
	Slots int
}

// Target is what a reservation asks for: slots, or amounts of given nodes.
type Target struct {
	// Claim is the claim of the slots or amounts. Its UID must be set, and Slot or Amounts.
	Claim holds.Claim
	// Nodes are the amounts, places for pods among them, by node. They must not change.
	Nodes map[string]ledger.Resources
	// SameTerms means that the same pods may use what is held as in the version before: only what is wanted differs.
	SameTerms bool
	// Zones says how many slots each zone gets; no zone is named twice. If it is empty, Slots are spread evenly over all zones
	// with nodes that the fit selects.
	Zones []Zone
	Slots int
	// Known are zones over which the slots were spread before, by another planner. They count although they may have lost all nodes.
	Known []string
	// PerNode is how many slots, and owners that use none, a node may have together; 0 for no limit.
	PerNode    int
	Fit        *Fit
	OnZoneLoss LossPolicy
}

// totalSlots is the number of slots in all zones.
func (d *Target) totalSlots() int {
	if len(d.Zones) == 0 {
		return d.Slots
	}
	n := 0
	for _, z := range d.Zones {
		n += z.Slots
	}
	return n
}

// quota is how many slots a zone should have for now.
type quota struct {
	zone  string
	slots int
	// own is how many it should have if no zone is lost.
	own  int
	lost bool
}

// claim is a target with the planner's state of it.
type claim struct {
	Target
	total int
	// known are the zones over which a claim without zones has been spread, including those that have lost their last
	// node.
	known  map[string]struct{}
	quotas []quota
	// counts are the slots by zone, without those on lost nodes.
	counts map[string]holds.Count

	// dirty means that Reconcile must look at the claim.
	dirty bool
	// seeks are the zones in which one more slot is wanted; empty if the claim has all its slots.
	seeks []string
	// looked is, by zone, the point up to which no freed node has room for a slot.
	looked map[string]uint64
	// passed is a span in which no node was freed that has room for a slot, in any zone.
	passed span
	// owners is how many owners are on a node, by name, those in slots among them. It is kept for claims with PerNode.
	owners map[string]int
	// capped are the zones in which the bound on what is held keeps a slot from being placed.
	capped map[string]bool
	// away are nodes that were removed or ceased to be ready, full are nodes that became too full. Their slots have no other
	// place yet.
	away, full map[string]bool
	// excess is what to give up on a node.
	excess map[string]ledger.Resources
	amounts
}

// span is the time from one point of freeing to another.
type span struct{ from, to uint64 }

// extend makes the span end at to. It begins at from unless it ended there, or later.
func (s *span) extend(from, to uint64) {
	if s.to < from {
		s.from = from
	}
	s.to = to
}

// lookedAt is the point up to which no freed node of a zone has room for a slot.
func (w *claim) lookedAt(zone string) uint64 {
	if at := w.looked[zone]; at < w.passed.from || at > w.passed.to {
		return at
	}
	return w.passed.to
}

func newClaim(d Target) *claim {
	w := &claim{
		Target: d, total: d.totalSlots(), dirty: true,
		known: map[string]struct{}{}, counts: map[string]holds.Count{}, looked: map[string]uint64{}, owners: map[string]int{},
		capped: map[string]bool{}, away: map[string]bool{}, full: map[string]bool{}, excess: map[string]ledger.Resources{},
		amounts: amounts{stale: map[string]bool{}, drafted: map[string]bool{}, lacks: map[string]lack{}},
	}
	for _, zone := range d.Known {
		w.known[zone] = struct{}{}
	}
	return w
}

// inherit takes over from the version before what the nodes do not tell: their owners, and what was lost with those that are gone.
func (w *claim) inherit(old *claim) {
	if old.PerNode > 0 && w.PerNode > 0 {
		w.owners = old.owners // they are counted with PerNode only
	}
	if w.Claim.Amounts || old.Claim.Amounts || !slices.Equal(w.Fit.selector, old.Fit.selector) {
		return
	}
	if slices.EqualFunc(w.Zones, old.Zones, func(a, b Zone) bool { return a.Name == b.Name }) {
		w.known, w.away, w.full = old.known, old.away, old.full
	}
}

func (w *claim) uid() types.UID { return w.Claim.UID }

// counted is how many slots of a zone count towards the claim.
func (w *claim) counted(zone string) int {
	n := w.counts[zone]
	return w.Claim.Counts(n.Slots, n.Used)
}

// sum is how many slots count in all zones, and slots how many there are.
func (w *claim) sum() (counted, slots int) {
	for _, n := range w.counts {
		counted += w.Claim.Counts(n.Slots, n.Used)
		slots += n.Slots
	}
	return counted, slots
}

// unfilled reports whether slots, or parts of amounts, are missing.
func (w *claim) unfilled() bool {
	counted, _ := w.sum()
	return counted < w.total || len(w.lacks) > 0
}

// apportion distributes the slots over the zones, whose nodes tallies counts.
func (w *claim) apportion(tallies map[string]*tally) {
	all := w.quotas[:0]
	for _, z := range w.Zones {
		all = append(all, quota{zone: z.Name, slots: z.Slots})
	}
	if len(w.Zones) == 0 {
		for zone, t := range tallies {
			if t.selected > 0 {
				w.known[zone] = struct{}{}
			}
		}
		for zone := range w.known {
			all = append(all, quota{zone: zone})
		}
	}
	slices.SortFunc(all, func(a, b quota) int { return cmp.Compare(a.zone, b.zone) })
	if len(w.Zones) == 0 {
		spread(w.Slots, all)
	}
	shifting := 0
	var left []quota
	for i := range all {
		q := &all[i]
		q.own = q.slots
		t := tallies[q.zone]
		if q.lost = t == nil || t.usable == 0; !q.lost {
			left = append(left, quota{zone: q.zone})
		} else if w.OnZoneLoss == Shift {
			// Pods that keep running in slots there keep the slots.
			used := w.counts[q.zone].Used
			stays := min(q.slots, w.Claim.Counts(used, used))
			shifting += q.slots - stays
			q.slots = stays
		}
	}
	w.quotas = all
	if len(left) == 0 {
		for i := range all {
			all[i].slots = all[i].own
		}
		return
	}
	spread(shifting, left)
	for _, extra := range left {
		w.quota(extra.zone).slots += extra.slots
	}
}

// spread distributes n over the zones in turn.
func spread(n int, zones []quota) {
	for i := 0; i < n && len(zones) > 0; i++ {
		zones[i%len(zones)].slots++
	}
}

// quota returns the zone's, or nil.
func (w *claim) quota(zone string) *quota {
	for i := range w.quotas {
		if w.quotas[i].zone == zone {
			return &w.quotas[i]
		}
	}
	return nil
}

// missingInAnyZone is how many slots are wanted in any zone, once no zone that has room lacks part of its quota. For a claim without
// zones that is all that is missing. For one with zones these slots replace used ones: during a rolling update, a pod may
// leave another zone than the one that the next pod comes to.
func (w *claim) missingInAnyZone() int {
	counted, total := w.sum()
	n := w.total - counted
	if len(w.Zones) > 0 {
		used, replaced := total-counted, max(0, total-w.total)
		n = min(n, used-replaced)
	}
	// Slots that a lost zone lacks are not wanted elsewhere here.
	for i := range w.quotas {
		if q := &w.quotas[i]; q.lost {
			n -= max(0, q.slots-w.counted(q.zone))
		}
	}
	return n
}

// mayAddSlot reports whether one more slot is wanted in a zone that lacks one: slots are missing, or surplus unused ones in other
// zones can be given up for it. Slots that are used elsewhere are not held twice.
func (w *claim) mayAddSlot() bool {
	counted, _ := w.sum()
	spare := w.total - counted
	for zone, n := range w.counts {
		quota := 0
		if q := w.quota(zone); q != nil {
			quota = q.slots
		}
		spare += max(0, min(n.Slots-n.Used, w.Claim.Counts(n.Slots, n.Used)-quota))
	}
	return spare > 0
}

// seek computes the zones in which one more slot is wanted.
func (w *claim) seek() {
	w.seeks = w.seeks[:0]
	anywhere, grows := w.missingInAnyZone() > 0, w.mayAddSlot()
	for i := range w.quotas {
		if q := &w.quotas[i]; !q.lost && (anywhere || grows && w.counted(q.zone) < q.slots) {
			w.seeks = append(w.seeks, q.zone)
		}
	}
}
