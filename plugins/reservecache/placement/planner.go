package placement

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Planner places the slots of reservations, and repairs their placement, by Reconcile and Collect. Make one with New. Its methods may be called from
// several goroutines, but not with the lock of the scheduling queue held.
type Planner struct {
	holds *holds.Holds
	// fraction limits the unused slots of a zone to a part of what the zone's nodes offer; 1 and more means no limit.
	fraction float64
	// nominatedOn returns the requests, summed up, of the pods that are nominated to a node. It is called without the planner's lock.
	nominatedOn func(node string) ledger.Resources

	// turn is held by Collect and Reconcile from beginning to end, since mu is released while they ask for nominated pods: neither sees
	// the other's drafts. It is taken before mu, and mu before recording.
	turn sync.Mutex
	// recording is held while a draft is recorded, and by Exclusively.
	recording sync.Mutex
	// idle is set while no claim lacks slots or has to be looked at, so that cycles need not wait for a turn. It changes under mu.
	idle atomic.Bool

	mu sync.Mutex // guards all fields below and everything that they lead to
	// worker has the room of the nodes as the ledger had them at the last Reconcile, cycles as scheduling cycles had them at the last Collect.
	worker, cycles *rooms
	// cyclesHaveMore means that the cycles see nodes that the ledger has not, or has no longer.
	cyclesHaveMore bool
	// claims are all by UID, and queue the same, the oldest first.
	claims map[types.UID]*claimState
	queue  []*claimState
	fits   map[string]*fitTally
	// seeking counts the claims that lack slots.
	seeking int
	// full are the nodes with negative room.
	full map[*nodeRoom]struct{}
	// nominated is what the pods ask for that were nominated to a node when the planner last asked.
	nominated map[string]ledger.Resources
	// touched are the claims that have changed since TakeTouched.
	touched map[types.UID]struct{}
	// reread are the rooms for which pods may belong to other claims than before.
	reread map[*rooms]bool
}

// fitTally counts the nodes that a fit selects, and those that are usable, by zone.
type fitTally struct {
	fit   *Fit
	zones map[string]*tally
}

// New returns a planner without claims, which records slots in h. maxHeldFraction limits the unused slots of each zone:
// together they take at most that part of what the zone's nodes offer, of each resource. nominatedOn, which
// may be nil, returns what the pods ask for together that are nominated to a node and not on it yet.
func New(h *holds.Holds, maxHeldFraction float64, nominatedOn func(node string) ledger.Resources) *Planner {
	p := &Planner{
		holds: h, fraction: maxHeldFraction, nominatedOn: nominatedOn,
		claims: map[types.UID]*claimState{}, fits: map[string]*fitTally{},
		full: map[*nodeRoom]struct{}{}, nominated: map[string]ledger.Resources{}, touched: map[types.UID]struct{}{}, reread: map[*rooms]bool{},
	}
	p.worker, p.cycles = newRooms(h, p.nominated), newRooms(h, p.nominated)
	p.worker.notes = &notes{}
	p.worker.ownedChanged = p.noteOwnersLocked
	p.cycles.ownedChanged = func(n *nodeRoom, _ map[types.UID]ledger.Resources) { p.cycles.offerAgain(n) }
	return p
}

// Set adds a claim, or replaces it by a newer version. No slot is placed before the next Reconcile. Without SameTerms what it holds counts as
// freed: other pods may take it if the priority is lower now, and so may new owners.
func (p *Planner) Set(d Target) {
	d.Claim.Slot = d.Claim.Slot.Clone()
	if !d.Claim.Amounts {
		d.Claim.Slot.Pods = 1
	}
	d.Zones = slices.Clone(d.Zones)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds.SetClaim(d.Claim)
	p.idle.Store(false)
	c := newClaim(d)
	if old := p.claims[c.claimUID()]; old != nil {
		c.inheritFrom(old)
		p.dropLocked(old)
	} else {
		for name, n := range p.worker.nodes {
			if owned, runs := n.owned[c.claimUID()]; runs {
				c.owners[name] = int(owned.Pods)
			}
		}
	}
	p.claims[c.claimUID()] = c
	at, _ := slices.BinarySearchFunc(p.queue, c, compareAge)
	p.queue = slices.Insert(p.queue, at, c)
	p.tallyLocked(c.Fit)
	for name := range c.Nodes {
		c.markStale(name)
	}
	for _, name := range p.holds.NodesOf(c.claimUID()) {
		c.markStale(name)
		if !d.SameTerms {
			p.freeLocked(name)
		}
	}
}

// freeLocked records that a node may have room that others have not looked at.
func (p *Planner) freeLocked(name string) {
	for _, b := range []*rooms{p.worker, p.cycles} {
		if n := b.nodes[name]; n != nil {
			b.offerAgain(n)
		}
	}
}

// nodeLocked returns a node as the ledger has it, or as only the cycles do yet; nil for one that the ledger has removed.
func (p *Planner) nodeLocked(name string) *nodeRoom {
	if n := p.worker.nodes[name]; n != nil {
		return n
	}
	if n := p.cycles.nodes[name]; n != nil && n.zone != nil {
		return n
	}
	return nil
}

// updateLocked makes rooms equal to what read returns, or to its recent nodes.
func (p *Planner) updateLocked(r *rooms, read func() View, all bool) {
	r.read = read
	r.update(read(), all || p.reread[r])
	if p.reread[r] {
		delete(p.reread, r)
		r.rereadOwned()
	}
	p.removedLocked()
}

// removedLocked handles nodes that one of the sources has no more. A node that the ledger has removed does not exist, whatever the cycles see yet.
func (p *Planner) removedLocked() {
	for _, name := range p.worker.removed {
		if n := p.cycles.nodes[name]; n != nil {
			p.cycles.leaveZone(n)
		}
	}
	for _, name := range slices.Concat(p.worker.removed, p.cycles.removed) {
		if p.nodeLocked(name) != nil {
			continue
		}
		delete(p.nominated, name)
		held := p.holds.Node(name)
		if held == nil {
			continue
		}
		for i := range held.Holds {
			if c := p.claims[held.Holds[i].Claim.UID]; c != nil {
				c.markStale(name)
			}
		}
	}
	p.worker.removed, p.cycles.removed = nil, nil
	if p.worker.moved || p.cycles.moved {
		p.worker.moved, p.cycles.moved = false, false
		p.cyclesHaveMore = slices.ContainsFunc(p.cycles.order, func(n *nodeRoom) bool { return p.worker.nodes[n.name] == nil })
	}
}

// Remove forgets a claim and releases what it holds.
func (p *Planner) Remove(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.claims[uid]; c != nil {
		p.dropLocked(c)
	}
	p.holds.Release(uid)
}

func (p *Planner) dropLocked(c *claimState) {
	delete(p.claims, c.claimUID())
	p.queue = slices.DeleteFunc(p.queue, func(other *claimState) bool { return other == c })
	if len(c.seeks) > 0 {
		p.seeking--
	}
	if !slices.ContainsFunc(p.queue, func(other *claimState) bool { return other.Fit.key == c.Fit.key }) {
		delete(p.fits, c.Fit.key)
	}
}

func compareAge(a, b *claimState) int { return holds.CompareAge(&a.Claim, &b.Claim) }

// OwnersChanged records that pods may belong to other claims than before.
func (p *Planner) OwnersChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reread[p.worker], p.reread[p.cycles] = true, true
	p.idle.Store(false)
}

// Exclusively runs f, which admits a pod or undoes that, while no slot is recorded: a slot is recorded either before f, or for the room that f
// leaves.
func (p *Planner) Exclusively(f func()) {
	p.recording.Lock()
	defer p.recording.Unlock()
	f()
}

// noteOwnersLocked takes into account that other pods of claims are on a node than before.
func (p *Planner) noteOwnersLocked(n *nodeRoom, before map[types.UID]ledger.Resources) {
	for uid, owned := range n.owned {
		if earlier := before[uid]; !earlier.Equal(&owned) {
			p.noteOwnersOfLocked(uid, n, int(earlier.Pods))
		}
	}
	for uid, earlier := range before {
		if _, still := n.owned[uid]; !still {
			p.noteOwnersOfLocked(uid, n, int(earlier.Pods))
		}
	}
}

// noteOwnersOfLocked is noteOwnersLocked for the pods of one claim, of which there were some before.
func (p *Planner) noteOwnersOfLocked(uid types.UID, n *nodeRoom, before int) {
	c := p.claims[uid]
	if c == nil {
		return
	}
	owned := n.ownedBy(uid)
	now := int(owned.Pods)
	c.owners[n.name] = now
	if now == 0 {
		delete(c.owners, n.name)
	}
	switch {
	case c.Claim.Inclusive():
		p.touched[uid] = struct{}{}
		if !c.Claim.Amounts {
			c.dirty = true // what is used of the slots stays, and slots go to pods that run outside of them
			p.worker.offerAgain(n)
		}
	case c.PerNode > 0 && now > before:
		c.dirty = true
	case c.PerNode > 0 && now < before:
		p.worker.offerAgain(n)
	}
}

// tallyLocked counts the nodes under a fit.
func (p *Planner) tallyLocked(fit *Fit) {
	if p.fits[fit.key] != nil {
		return
	}
	t := &fitTally{fit: fit, zones: map[string]*tally{}}
	p.fits[fit.key] = t
	for _, n := range p.worker.nodes {
		t.tallyNode(n.countedAs, 1)
	}
}

// tallyNode adds or takes away a node, which may be nil. It reports whether a zone came to have usable or selected nodes, or ceased to.
func (t *fitTally) tallyNode(n *v1.Node, sign int) bool {
	if n == nil {
		return false
	}
	name, unfit := n.Labels[v1.LabelTopologyZone], t.fit.Unfit(n)
	zone := t.zones[name]
	if zone == nil {
		zone = &tally{}
		t.zones[name] = zone
	}
	before := *zone
	if unfit != NotSelected {
		zone.selected += sign
	}
	if unfit == "" {
		zone.usable += sign
	}
	if *zone == (tally{}) {
		delete(t.zones, name)
	}
	return (before.usable > 0) != (zone.usable > 0) || (before.selected > 0) != (zone.selected > 0)
}

// retallyLocked counts the nodes again whose objects have changed, and marks the claims whose zones are affected.
func (p *Planner) retallyLocked() {
	notes := p.worker.notes
	if len(notes.objects) == 0 {
		return
	}
	for _, t := range p.fits {
		changed := false
		for _, n := range notes.objects {
			left, came := t.tallyNode(n.countedAs, -1), t.tallyNode(n.presentObject(), 1)
			changed = changed || left || came
		}
		if !changed {
			continue
		}
		for _, c := range p.queue {
			c.dirty = c.dirty || c.Fit.key == t.fit.key
		}
	}
	for _, n := range notes.objects {
		n.tallyQueued, n.countedAs = false, n.presentObject()
	}
	clear(notes.objects)
	notes.objects = notes.objects[:0]
}

// countLocked updates what a claim holds, and in which zones it seeks slots.
func (p *Planner) countLocked(c *claimState) {
	sought := slices.Clone(c.seeks)
	if c.Claim.Amounts {
		p.countNodesLocked(c)
	} else {
		p.countSlotsLocked(c)
		c.taken = max(0, min(c.taken, c.total-c.slotsInAllZones()))
		c.updateSeeks()
	}
	switch {
	case len(c.seeks) > 0 && len(sought) == 0:
		p.seeking++
	case len(sought) > 0 && len(c.seeks) == 0:
		p.seeking--
	}
	if len(c.seeks) > 0 && !c.Claim.Amounts && !slices.Equal(sought, c.seeks) {
		p.worker.offered, p.cycles.offered = 0, 0 // look at all nodes again
	}
}

func (p *Planner) countSlotsLocked(c *claimState) {
	clear(c.counts)
	p.holds.Counts(c.claimUID(), func(zone string, slots int) { c.counts[zone] = count{slots: slots} })
	if !c.Claim.Inclusive() {
		return
	}
	nodes, _ := p.holds.Status(c.claimUID())
	for i := range nodes {
		if at := p.nodeLocked(nodes[i].Node); at != nil {
			owned := at.ownedBy(c.claimUID())
			n := c.counts[nodes[i].Zone]
			n.used += nodes[i].Slots() - c.Claim.UnusedSlots(nodes[i].Slots(), &owned)
			c.counts[nodes[i].Zone] = n
		}
	}
}

// countTakenLocked records which slots pods took.
func (p *Planner) countTakenLocked() {
	for uid, slots := range p.holds.TakeLowered() {
		if c := p.claims[uid]; c != nil {
			c.dirty = true
			c.taken += slots
			p.touched[uid] = struct{}{}
			p.countLocked(c)
		}
	}
}

// TakeTouched returns the claims whose slots, or the use of these, have changed since the last call, or that were looked at.
func (p *Planner) TakeTouched() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.touched) == 0 {
		return nil
	}
	touched := slices.Collect(maps.Keys(p.touched))
	clear(p.touched)
	return touched
}

// Unused returns what is held and not used, by zone.
func (p *Planner) Unused() map[string]ledger.Resources {
	p.mu.Lock()
	defer p.mu.Unlock()
	sums := map[string]ledger.Resources{}
	for name, z := range p.worker.zones {
		if !z.unused.IsZero() {
			sums[name] = z.unused.Clone()
		}
	}
	return sums
}

// TakeFreed returns the nodes on which a pod may since the last call find new room or unused slots, or be admitted.
func (p *Planner) TakeFreed() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	notes := p.worker.notes
	freed := make([]string, 0, len(notes.roomier))
	for _, n := range notes.roomier {
		n.wakeQueued = false
		freed = append(freed, n.name)
	}
	clear(notes.roomier)
	notes.roomier = notes.roomier[:0]
	return freed
}

// Unfilled returns the claims that lack slots, the oldest first.
func (p *Planner) Unfilled() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var unfilled []types.UID
	for _, c := range p.queue {
		if c.unfilled() {
			unfilled = append(unfilled, c.claimUID())
		}
	}
	return unfilled
}

// Result is what a Planner did.
type Result struct {
	// Changed are the claims whose slots changed.
	Changed []types.UID
	// Full are the slots that were given up because their nodes no longer have room for them.
	Full []Full
	// More means that there is more to do, and that Reconcile must be called again.
	More bool
}

// Full is an amount that was given up.
type Full struct {
	Claim  types.UID
	Node   string
	Amount ledger.Resources
}
