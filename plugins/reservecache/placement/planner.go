package placement

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// Planner places what reservations hold, and repairs the placement. Make one with New. Its methods may be called from
// several goroutines, but not under the lock of the scheduling queue, which they may wait for.
//
// Two methods do the work. Reconcile, called by a worker, reads the nodes of the ledger into ledgerNodes, repairs the
// claims that need it, and offers freed room to those that lack something. Collect, called by scheduling cycles, reads
// the cycle's nodes into cycleNodes, and offers the room that was freed there. What either decides for a claim is a
// draft, which is recorded as a whole or not at all.
type Planner struct {
	holds *holds.Holds
	// fraction is the part of what a zone's nodes offer up to which slots and amounts there are added, as far as they
	// are unused; 1 and more means no limit.
	fraction float64
	// nominatedOn returns the sum of the requests of the pods that are nominated to a node; nil if there are none ever.
	// It takes the lock of the scheduling queue, under mu.
	nominatedOn func(node string) ledger.Resources

	// admission is held while a draft is recorded, and by Exclusively while a pod is admitted. It is taken after mu.
	admission sync.Mutex
	// nothingToCollect is set while Collect has nothing to do: no claim seeks room or needs Reconcile, and cycles see
	// the nodes of the ledger. Cycles then need not wait for mu, under which it changes.
	nothingToCollect atomic.Bool

	mu sync.Mutex // guards all fields below and everything that they lead to
	// ledgerNodes are the nodes as the ledger had them at the last Reconcile, and cycleNodes as scheduling cycles had
	// them at the last Collect. The two hear of events at different times; what is held is the same for both.
	ledgerNodes, cycleNodes *nodeSet
	// cyclesSeeMoreNodes means that the cycles see nodes that the ledger has not yet, or has no longer. Collect then
	// reads the cycle's nodes in any case, to notice when these go. What is held on nodes that only the cycles had
	// goes with them.
	cyclesSeeMoreNodes bool
	// claims has all claims by UID, and byAge the same, the oldest first.
	claims map[types.UID]*claimState
	byAge  []*claimState
	// seekers lists the claims that seek room.
	seekers seekers
	// nodeCounts are the numbers of nodes that meet requirements, by the key of these.
	nodeCounts map[string]*nodeCounts
	// tooFull are the nodes on which what is unused has no room beside the pods.
	tooFull map[*nodeRoom]struct{}
	// nominated is what nominatedOn last returned, by node, where it was something.
	nominated map[string]ledger.Resources
	// touched are the claims of which something has changed since TakeTouched.
	touched map[types.UID]struct{}
}

// New returns a planner without claims, which records in h what is held. maxHeldFraction limits what is added in each
// zone: all that is unused there, slots and amounts, may then take at most that part of what the zone's nodes offer, of
// each resource. What is held already stays. nominatedOn, which may be nil, returns the sum of the requests of the pods
// that are nominated to a node and not on it yet.
func New(h *holds.Holds, maxHeldFraction float64, nominatedOn func(node string) ledger.Resources) *Planner {
	p := &Planner{
		holds: h, fraction: maxHeldFraction, nominatedOn: nominatedOn,
		claims: map[types.UID]*claimState{}, nodeCounts: map[string]*nodeCounts{},
		tooFull: map[*nodeRoom]struct{}{}, nominated: map[string]ledger.Resources{}, touched: map[types.UID]struct{}{},
	}
	p.ledgerNodes, p.cycleNodes = newNodeSet(h, p.nominated), newNodeSet(h, p.nominated)
	p.ledgerNodes.changes = &nodeChanges{}
	p.ledgerNodes.onOwnedChanged = p.noteOwnersLocked
	p.cycleNodes.onOwnedChanged = func(n *nodeRoom, _ map[types.UID]ledger.Resources) { p.cycleNodes.free(n) }
	return p
}

// Set adds a claim, or replaces it by a newer version. Nothing is placed for it before the next Reconcile. Without
// SameTerms the nodes on which it holds something count as freed: other pods may fit there now.
func (p *Planner) Set(target Target) {
	target.Zones = slices.Clone(target.Zones)
	p.mu.Lock()
	defer p.mu.Unlock()
	target.Claim = p.holds.SetClaim(target.Claim)
	p.nothingToCollect.Store(false)
	c := newClaim(target)
	if old := p.claims[c.UID]; old != nil {
		c.inheritFrom(old)
		p.dropLocked(old)
	}
	p.claims[c.UID] = c
	at, _ := slices.BinarySearchFunc(p.byAge, c, compareAge)
	p.byAge = slices.Insert(p.byAge, at, c)
	p.countNodesLocked(c.Requirements)
	for name := range c.Nodes {
		c.requestReconcile(name)
	}
	for _, name := range p.holds.NodesOf(c.UID) {
		c.requestReconcile(name)
		if !target.SameTerms {
			p.freeLocked(name)
		}
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

// dropLocked forgets a claim, and leaves what it holds.
func (p *Planner) dropLocked(c *claimState) {
	delete(p.claims, c.UID)
	p.byAge = slices.DeleteFunc(p.byAge, func(other *claimState) bool { return other == c })
	p.seekers.changed = p.seekers.changed || c.seeksRoom()
	if !slices.ContainsFunc(p.byAge, func(other *claimState) bool { return other.Requirements.Key() == c.Requirements.Key() }) {
		delete(p.nodeCounts, c.Requirements.Key())
	}
}

// OwnersChanged has the next Reconcile and Collect read again which pods belong to which claim.
func (p *Planner) OwnersChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledgerNodes.ownersChanged, p.cycleNodes.ownersChanged = true, true
	p.nothingToCollect.Store(false)
}

// Exclusively runs f, which admits a pod or undoes that, while no draft is recorded: a draft is recorded either
// before f, or after f, against the room that is left.
func (p *Planner) Exclusively(f func()) {
	p.admission.Lock()
	defer p.admission.Unlock()
	f()
}

// Result is what Reconcile or Collect did.
type Result struct {
	// Changed are the claims of which the holds have changed.
	Changed []types.UID
	// GivenUp is what was given up because its node has no room for it any more.
	GivenUp []GivenUp
	// More means that there is more to do, for which Reconcile must be called (again).
	More bool
}

// GivenUp is an amount that was given up.
type GivenUp struct {
	Claim  types.UID
	Node   string
	Amount ledger.Resources
}

// TakeTouched returns the claims of which something has changed since the last call, such as what they hold or what
// of it is used.
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

// TakeToWake returns the nodes on which a waiting pod may now fit: those that were freed, or on which more is unused,
// since the last call.
func (p *Planner) TakeToWake() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	toWake := &p.ledgerNodes.changes.toWake
	names := make([]string, 0, len(*toWake))
	for _, n := range *toWake {
		n.wakeQueued = false
		names = append(names, n.name)
	}
	clear(*toWake)
	*toWake = (*toWake)[:0]
	return names
}

// Unfilled returns the claims that lack something, the oldest first.
func (p *Planner) Unfilled() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var unfilled []types.UID
	for _, c := range p.byAge {
		if c.unfilled() {
			unfilled = append(unfilled, c.UID)
		}
	}
	return unfilled
}

// Unused returns what is held and not used, by zone.
func (p *Planner) Unused() map[string]ledger.Resources {
	p.mu.Lock()
	defer p.mu.Unlock()
	sums := map[string]ledger.Resources{}
	for name, z := range p.ledgerNodes.zones {
		if !z.unused.IsZero() {
			sums[name] = z.unused.Clone()
		}
	}
	return sums
}
