package ledger

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ClaimStatus is what the ledger says of one claim.
type ClaimStatus struct {
	Claim
	// Slots is how many slots there are, and Used how many of them a pod uses.
	Slots, Used int
	// Missing is how many slots the claim lacks to have what it wants.
	Missing int
	// Holds are sorted by node and For.
	Holds []HoldStatus
}

// HoldStatus is the slots of a claim on one node.
type HoldStatus struct {
	Node string
	// Zone is the node's topology.kubernetes.io/zone; empty for a node without one.
	Zone     string
	Requests Resources
	Slots    int
	For      types.UID
	// Consumers are the pods that use a slot, the oldest use first.
	Consumers []types.UID
	// Excess is how many of the unused slots have no room, because the node is overcommitted.
	Excess int
}

// Claim returns what is known of a claim, and false for one that the ledger does not have.
func (l *Ledger) Claim(id ClaimID) (ClaimStatus, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[id]
	if c == nil {
		return ClaimStatus{}, false
	}
	return c.status(), true
}

// Claims returns all claims, sorted by age.
func (l *Ledger) Claims() []ClaimStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claimsLocked()
}

func (l *Ledger) claimsLocked() []ClaimStatus {
	if len(l.claims) == 0 {
		return nil
	}
	all := make([]ClaimStatus, 0, len(l.claims))
	for _, c := range l.claims {
		all = append(all, c.status())
	}
	slices.SortFunc(all, func(a, b ClaimStatus) int { return compareAge(&a.Claim, &b.Claim) })
	return all
}

func (c *claim) status() ClaimStatus {
	s := ClaimStatus{Claim: *c.spec, Slots: c.slots, Used: c.used, Missing: c.missing(), Holds: make([]HoldStatus, 0, len(c.holds))}
	for _, h := range c.holds {
		hs := HoldStatus{Node: h.node.name, Zone: h.node.object.Labels[v1.LabelTopologyZone], Requests: h.requests.Clone(), Slots: h.slots, For: h.pod}
		for _, p := range h.consumers {
			hs.Consumers = append(hs.Consumers, p.object.UID)
		}
		if h.node.excess > 0 {
			for _, e := range h.node.held.Excess(&h.node.allocatable, &h.node.requested, nil) {
				if e.Hold.Claim.ID == c.spec.ID && e.Hold.For == h.pod {
					hs.Excess = e.Slots
				}
			}
		}
		s.Holds = append(s.Holds, hs)
	}
	slices.SortFunc(s.Holds, func(a, b HoldStatus) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.For, b.For)) })
	return s
}

// ClaimsVersion changes whenever a claim, its slots or the use of these do, so that a reader can tell cheaply
// that nothing has changed.
func (l *Ledger) ClaimsVersion() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claimsVersion
}

// Queue returns the unfilled claims, reservations and starving gangs together, the oldest first.
func (l *Ledger) Queue() []ClaimID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var queue []*Claim
	for _, c := range l.claims {
		if c.unfilled() {
			queue = append(queue, c.spec)
		}
	}
	slices.SortFunc(queue, compareAge)
	ids := make([]ClaimID, 0, len(queue))
	for _, c := range queue {
		ids = append(ids, c.ID)
	}
	return ids
}

// MayCollect reports whether a claim may collect freed capacity piece by piece: whether no gang that is
// older is doing so.
func (l *Ledger) MayCollect(id ClaimID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[id]
	return c != nil && l.olderUnfilledLocked(c.spec, Gang) == nil
}

// WaitsFor returns the name of the oldest gang that keeps a claim from collecting, or nothing.
func (l *Ledger) WaitsFor(id ClaimID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[id]; c != nil {
		if older := l.olderUnfilledLocked(c.spec, Gang); older != nil {
			return older.Name
		}
	}
	return ""
}

// News is what happened to a claim other than by its owner's own calls.
type News struct {
	Claim ClaimID
	// Lost are the slots that went with their nodes.
	Lost []Loss
	// Changed means that a pod began or ended to use a slot, or that on a node on which the claim has slots
	// more or fewer slots, of whatever claim, have no room.
	Changed bool
}

// Loss is slots that went with their node.
type Loss struct {
	Node string
	// Zone was the node's topology.kubernetes.io/zone.
	Zone string
	// Slots is how many went, Used how many of them a pod used.
	Slots, Used int
}

// TakeNews returns what happened since the last call, sorted by claim. What happens to a claim that is then
// released is forgotten.
func (l *Ledger) TakeNews() []News {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.news) == 0 {
		return nil
	}
	all := make([]News, 0, len(l.news))
	for _, n := range l.news {
		all = append(all, *n)
	}
	clear(l.news)
	slices.SortFunc(all, func(a, b News) int {
		return cmp.Or(cmp.Compare(a.Claim.Kind, b.Claim.Kind), cmp.Compare(a.Claim.UID, b.Claim.UID))
	})
	return all
}

func (l *Ledger) newsLocked(c *claim) *News {
	n := l.news[c.spec.ID]
	if n == nil {
		n = &News{Claim: c.spec.ID}
		l.news[c.spec.ID] = n
	}
	return n
}

// loseHoldsLocked takes all holds off a node that is being removed. The pods that used them stay.
func (l *Ledger) loseHoldsLocked(n *node) {
	if len(n.holds) == 0 {
		return
	}
	for _, h := range n.holds {
		news := l.newsLocked(h.claim)
		news.Lost = append(news.Lost, Loss{Node: n.name, Zone: n.object.Labels[v1.LabelTopologyZone], Slots: h.slots, Used: len(h.consumers)})
		h.claim.slots -= h.slots
		h.claim.used -= len(h.consumers)
		for _, p := range h.consumers {
			p.hold = nil
		}
		delete(h.claim.holds, h.key())
		if l.own[h.pod] == h {
			delete(l.own, h.pod)
		}
	}
	n.holds = nil
	l.heldLocked(n)
}

// weighLocked notes how many unused slots of a node have no room, and tells its claims when that changes.
func (l *Ledger) weighLocked(n *node) {
	excess := 0
	for _, e := range n.held.Excess(&n.allocatable, &n.requested, nil) {
		excess += e.Slots
	}
	if excess == n.excess {
		return
	}
	n.excess = excess
	for _, h := range n.holds {
		l.newsLocked(h.claim).Changed = true
	}
}
