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

// Planner places what reservations hold, and repairs the placement. Make one with New. Its methods may be called from several
// goroutines, but not with the lock of the scheduling queue held.
//
// It knows the nodes twice. A worker goroutine calls Reconcile, which reads the nodes of the ledger into ledgerNodes, repairs the
// claims that are dirty, and offers freed room to those that lack something. Scheduling cycles call Collect, which reads the cycle's
// nodes into cycleNodes, and offers what was freed there. What either decides for a claim is a draft, which is recorded as a whole or
// not at all.
type Planner struct {
	holds *holds.Holds
	// fraction limits the unused slots of a zone to a part of what the zone's nodes offer; 1 and more means no limit.
	fraction float64
	// nominatedOn returns the requests, summed up, of the pods that are nominated to a node. It is called without the planner's lock.
	nominatedOn func(node string) ledger.Resources

	// turn is held by Collect and Reconcile from beginning to end, since mu is released while they ask for nominated pods: neither
	// sees the other's drafts. It is taken before mu, and mu before recording.
	turn sync.Mutex
	// recording is held while a draft is recorded, and by Exclusively.
	recording sync.Mutex
	// idle is set while there is nothing to collect for: no claim seeks room or is dirty, and cycles see the nodes of the ledger.
	// Cycles then need not wait for a turn. It changes under mu.
	idle atomic.Bool

	mu sync.Mutex // guards all fields below and everything that they lead to
	// ledgerNodes are the nodes as the ledger had them at the last Reconcile, and cycleNodes as scheduling cycles had them at the
	// last Collect. The two hear of events at different times; what is held is the same for both.
	ledgerNodes, cycleNodes *nodeSet
	// cyclesSeeOthers means that the cycles see nodes that the ledger has not yet, or has no longer. Collect then reads the cycle's nodes
	// in any case, to notice when these go. What is held on nodes that only the cycles had goes with them.
	cyclesSeeOthers bool
	// claims are all by UID, and queue the same, the oldest first.
	claims map[types.UID]*claimState
	queue  []*claimState
	// seeking counts the claims that seek room, and seekers lists them.
	seeking int
	seekers seekers
	// fits count the nodes that may take slots, by the key of [Fit]: what a node must have and be, room aside.
	fits map[string]*fitTally
	// full are the nodes on which what is held has no room beside the pods.
	full map[*nodeRoom]struct{}
	// nominated is what the pods ask for that were nominated to a node when the planner last asked.
	nominated map[string]ledger.Resources
	// touched are the claims of which something has changed since TakeTouched.
	touched map[types.UID]struct{}
}

// New returns a planner without claims, which records what is held in h. maxHeldFraction limits the unused slots of each zone:
// together they take at most that part of what the zone's nodes offer, of each resource. nominatedOn, which
// may be nil, returns what the pods ask for together that are nominated to a node and not on it yet.
func New(h *holds.Holds, maxHeldFraction float64, nominatedOn func(node string) ledger.Resources) *Planner {
	p := &Planner{
		holds: h, fraction: maxHeldFraction, nominatedOn: nominatedOn,
		claims: map[types.UID]*claimState{}, fits: map[string]*fitTally{},
		full: map[*nodeRoom]struct{}{}, nominated: map[string]ledger.Resources{}, touched: map[types.UID]struct{}{},
	}
	p.ledgerNodes, p.cycleNodes = newNodeSet(h, p.nominated), newNodeSet(h, p.nominated)
	p.ledgerNodes.changes = &nodeChanges{}
	p.ledgerNodes.ownedChanged = p.noteOwnersLocked
	p.cycleNodes.ownedChanged = func(n *nodeRoom, _ map[types.UID]ledger.Resources) { p.cycleNodes.free(n) }
	return p
}

// Set adds a claim, or replaces it by a newer version. Before the next Reconcile nothing is placed for it, and it seeks no room. Without SameTerms what it holds
// counts as freed: other pods may take it if the priority is lower now, and so may new owners.
func (p *Planner) Set(target Target) {
	target.Zones = slices.Clone(target.Zones)
	p.mu.Lock()
	defer p.mu.Unlock()
	target.Claim = p.holds.SetClaim(target.Claim)
	p.idle.Store(false)
	c := newClaim(target)
	if old := p.claims[c.UID]; old != nil {
		c.inheritFrom(old)
		p.dropLocked(old)
	}
	p.claims[c.UID] = c
	at, _ := slices.BinarySearchFunc(p.queue, c, compareAge)
	p.queue = slices.Insert(p.queue, at, c)
	p.tallyLocked(c.Fit)
	for name := range c.Nodes {
		c.markStale(name)
	}
	for _, name := range p.holds.NodesOf(c.UID) {
		c.markStale(name)
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

func (p *Planner) dropLocked(c *claimState) {
	delete(p.claims, c.UID)
	p.queue = slices.DeleteFunc(p.queue, func(other *claimState) bool { return other == c })
	if len(c.seeks) > 0 {
		p.seeking--
		p.seekers.stale = true
	}
	if !slices.ContainsFunc(p.queue, func(other *claimState) bool { return other.Fit.key == c.Fit.key }) {
		delete(p.fits, c.Fit.key)
	}
}

// OwnersChanged records that pods may belong to other claims than before.
func (p *Planner) OwnersChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledgerNodes.ownersOutdated, p.cycleNodes.ownersOutdated = true, true
	p.idle.Store(false)
}

// Exclusively runs f, which admits a pod or undoes that, while no draft is recorded: a draft is recorded either before f, or for the
// room that f leaves.
func (p *Planner) Exclusively(f func()) {
	p.recording.Lock()
	defer p.recording.Unlock()
	f()
}

// Result is what Reconcile or Collect did.
type Result struct {
	// Changed are the claims of which the holds have changed.
	Changed []types.UID
	// GivenUp is what was given up because its node has no room for it any more.
	GivenUp []GivenUp
	// More means that there is more to do, and that Reconcile must be called again.
	More bool
}

// GivenUp is an amount that was given up.
type GivenUp struct {
	Claim  types.UID
	Node   string
	Amount ledger.Resources
}

// TakeTouched returns the claims of which something has changed since the last call, such as what they hold or what of it is used.
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

// TakeToWake returns the nodes on which, since the last call, a pod may have come to find room or unused slots, or may be admitted.
func (p *Planner) TakeToWake() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	toWake := &p.ledgerNodes.changes.toWake
	freed := make([]string, 0, len(*toWake))
	for _, n := range *toWake {
		n.wakeQueued = false
		freed = append(freed, n.name)
	}
	clear(*toWake)
	*toWake = (*toWake)[:0]
	return freed
}

// Unfilled returns the claims that lack something, the oldest first.
func (p *Planner) Unfilled() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var unfilled []types.UID
	for _, c := range p.queue {
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
