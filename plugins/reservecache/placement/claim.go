package placement

import (
	"cmp"
	"maps"
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
	// PerNode is how many slots, and owners outside of them, a node may have together; 0 for no limit.
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
	// counts are the slots by zone.
	counts map[string]count
	// taken is how many of the missing slots pods took since they were held. Others may take their place in any zone.
	taken int

	// dirty means that Reconcile must look at the claim.
	dirty bool
	// seeks are the zones in which one more slot is wanted; empty if the claim has all its slots.
	seeks []string
	// searches are what was found in the rooms of the worker and of the cycles.
	searches map[*rooms]*search
	// owners is how many of the claim's pods are on a node, by name.
	owners map[string]int
	// capped are the zones in which the bound on what is held keeps a slot from being placed.
	capped map[string]bool
	// away is how many slots were on nodes that were removed or ceased to be ready, and have no other place yet. Of a claim for amounts only
	// the names count.
	away map[string]int
	// full are nodes that became too full. Their slots have no other place yet.
	full map[string]bool
	// excess is what to give up on a node.
	excess map[string]ledger.Resources
	amounts
}

// count is a number of slots, and how many of them pods use that the slots include.
type count struct{ slots, used int }

// span is the time from one point of freeing to another.
type span struct{ from, to uint64 }

// extend makes the span end at to. It begins at from unless it ended there, or later.
func (s *span) extend(from, to uint64) {
	if s.to < from {
		s.from = from
	}
	s.to = to
}

// search is up to which point of freeing a claim has looked at nodes in vain.
type search struct {
	// looked is, by zone, the point up to which no freed node has room for a slot.
	looked map[string]uint64
	// passed is a span in which no node was freed that has room for a slot, in any zone.
	passed span
}

// searchOf returns that in some rooms.
func (w *claim) searchOf(b *rooms) *search {
	s := w.searches[b]
	if s == nil {
		s = &search{looked: map[string]uint64{}}
		w.searches[b] = s
	}
	return s
}

// lookedAt is the point up to which no freed node of a zone has room for a slot.
func (s *search) lookedAt(zone string) uint64 {
	if at := s.looked[zone]; at < s.passed.from || at > s.passed.to {
		return at
	}
	return s.passed.to
}

func newClaim(d Target) *claim {
	w := &claim{
		Target: d, total: d.totalSlots(), dirty: true,
		known: map[string]struct{}{}, counts: map[string]count{}, searches: map[*rooms]*search{}, owners: map[string]int{},
		capped: map[string]bool{}, away: map[string]int{}, full: map[string]bool{}, excess: map[string]ledger.Resources{},
		amounts: amounts{stale: map[string]bool{}, drafted: map[string]bool{}, lacks: map[string]lack{}},
	}
	for _, zone := range d.Known {
		w.known[zone] = struct{}{}
	}
	return w
}

// inherit takes over from the version before what the nodes do not tell: what was lost with those that are gone, and what pods took.
func (w *claim) inherit(old *claim) {
	w.owners, w.taken = old.owners, old.taken
	if w.Claim.Amounts || old.Claim.Amounts || !slices.Equal(w.Fit.selector, old.Fit.selector) {
		return
	}
	if slices.EqualFunc(w.Zones, old.Zones, func(a, b Zone) bool { return a.Name == b.Name }) {
		w.known, w.away, w.full = old.known, old.away, old.full
	}
}

func (w *claim) uid() types.UID { return w.Claim.UID }

// counted is how many slots a zone has.
func (w *claim) counted(zone string) int { return w.counts[zone].slots }

// sum is how many slots there are in all zones.
func (w *claim) sum() (slots int) {
	for _, n := range w.counts {
		slots += n.slots
	}
	return slots
}

// unfilled reports whether slots, or parts of amounts, are missing.
func (w *claim) unfilled() bool {
	return w.sum() < w.total || len(w.lacks) > 0
}

// forgetAway records that slots have been placed: they stand in for those of nodes that are away.
func (w *claim) forgetAway(placed int) {
	for _, name := range slices.Sorted(maps.Keys(w.away)) {
		if w.away[name] > placed {
			w.away[name] -= placed
			return
		}
		placed -= w.away[name]
		delete(w.away, name)
	}
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
			stays := min(q.slots, w.counts[q.zone].used)
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
// zones that is all that is missing. For one with zones these slots replace those that pods took: during a rolling update, a pod may
// leave another zone than the one that the next pod comes to.
func (w *claim) missingInAnyZone() int {
	n := w.total - w.sum()
	if len(w.Zones) > 0 {
		n = min(n, w.taken)
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
// zones can be given up for it.
func (w *claim) mayAddSlot() bool {
	spare := w.total - w.sum()
	for zone, n := range w.counts {
		quota := 0
		if q := w.quota(zone); q != nil {
			quota = q.slots
		}
		spare += max(0, min(n.slots-n.used, n.slots-quota))
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

// slotTakes returns the room that one more slot takes on a node on which the claim has that many: what it adds to what is unused. Pods that
// run there already are in it.
func (w *claim) slotTakes(slots int, owned *ledger.Resources) ledger.Resources {
	if !w.Claim.Inclusive() {
		return w.Claim.Slot
	}
	before, after := w.Claim.Slots(slots), w.Claim.Slots(slots+1)
	before, after = w.Claim.Unused(&before, owned), w.Claim.Unused(&after, owned)
	return after.Less(&before)
}

// mayHave reports whether a node on which the claim has that many slots may have one more, its room aside.
func (w *claim) mayHave(n *node, slots int) bool {
	if !w.Claim.Inclusive() {
		owned := n.ownedBy(w.uid())
		slots += int(owned.Pods)
	}
	return w.PerNode == 0 || slots < w.PerNode
}
