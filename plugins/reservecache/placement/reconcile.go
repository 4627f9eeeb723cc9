package placement

import "slices"

// looksPerSlice limits how many nodes Reconcile looks at while others wait for the lock: one claim's search of a large
// cluster.
const looksPerSlice = 5000

// Reconcile repairs what changed claims hold by the nodes of the ledger, the oldest claim first: it gives up slots that may not stay,
// places missing ones, and gives up surplus ones, in one draft for each claim. Slots that may stay where they are stay. Then it offers
// what was freed to the claims that lack something.
//
// It works for a slice of time, and says whether there is more to do. read returns the nodes as they are when it is called. It is called
// again if one has changed that was about to get slots: a pod may have taken the room.
// trails reports whether the view of a node is known to be behind the API server: what has no room there is then left alone,
// until it is not.
func (p *Planner) Reconcile(read func() View, trails func(node string) bool) Result {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.noteIdleLocked()
	var result Result
	p.countTakenLocked()
	nodes := p.ledgerNodes
	p.updateLocked(nodes, read, false)
	p.askAgainLocked(0)
	p.inspectLocked(trails, &result)
	p.retallyLocked()
	p.uncapLocked()
	looks := 0
	for c := p.firstDirtyLocked(); c != nil && looks < looksPerSlice; c = p.firstDirtyLocked() {
		c.dirty = false
		looks += 1 + p.reconcileLocked(c, &result)
	}
	// Others may take what one gave up, and what became free.
	upTo := nodes.freeings
	if p.seeking > 0 && nodes.offeredUpTo != upTo {
		for _, c := range p.interestedLocked(nodes) {
			if looks >= looksPerSlice {
				result.More = true
				return result
			}
			if !c.dirty && p.claims[c.UID] == c {
				looks += p.collectLocked(c, nodes, 0, &result)
			}
		}
	}
	result.More = p.anyDirtyLocked() || nodes.offeredUpTo != upTo && nodes.freeings != upTo
	if !result.More {
		nodes.offeredUpTo = upTo
	}
	return result
}

func (p *Planner) reconcileLocked(c *claimState, result *Result) int {
	if c.HasSlots() {
		return p.reconcileSlotsLocked(c, result)
	}
	return p.reconcileAmountsLocked(c, result)
}

func (p *Planner) firstDirtyLocked() *claimState {
	for _, c := range p.queue {
		if c.dirty {
			return c
		}
	}
	return nil
}

func (p *Planner) anyDirtyLocked() bool { return p.firstDirtyLocked() != nil }

// inspectLocked looks at the changed nodes, and marks the claims that hold something on a node that is gone, unfit or too full.
func (p *Planner) inspectLocked(trails func(string) bool, result *Result) {
	ofAmounts := slices.DeleteFunc(slices.Clone(p.queue), func(c *claimState) bool { return c.HasSlots() })
	changed := &p.ledgerNodes.changes.toReconcile
	for _, n := range *changed {
		n.reconcileQueued = false
		p.inspectNodeLocked(n, ofAmounts)
	}
	clear(*changed)
	*changed = (*changed)[:0]
	for n := range p.full {
		if trails == nil || !trails(n.name) {
			delete(p.full, n)
			p.giveUpExcessLocked(n, result)
		}
	}
}

func (p *Planner) inspectNodeLocked(n *nodeRoom, ofAmounts []*claimState) {
	if seen := p.cycleNodes.byName[n.name]; seen != nil && seen.zone == nil && n.zone != nil {
		p.cycleNodes.readAgain(seen) // the ledger had removed it
	}
	for _, c := range ofAmounts {
		if !p.asDesiredLocked(c, n) {
			c.markStale(n.name)
		}
	}
	if n.tallyQueued {
		p.markHoldersStaleLocked(n.name)
		for uid := range n.owned { // slots follow owners on a node that is ready again
			if c := p.claims[uid]; c != nil {
				c.markStale(n.name)
			}
		}
	}
	delete(p.full, n)
	if n.zone != nil && n.isTooFull() {
		p.full[n] = struct{}{}
	}
}

// giveUpExcessLocked has claims give up what has no room on a node.
func (p *Planner) giveUpExcessLocked(n *nodeRoom, result *Result) {
	for _, e := range n.held.Excess(&n.allocatable, &n.requested, n.ownedBy) {
		if c := p.claims[e.Claim]; c != nil {
			c.markStale(n.name)
			c.excess[n.name], c.full[n.name] = e.Amount, true
			result.GivenUp = append(result.GivenUp, GivenUp{Claim: e.Claim, Node: n.name, Amount: e.Amount})
		}
	}
}

// isTooFull reports whether what is unused on a node has no room beside its pods.
func (n *nodeRoom) isTooFull() bool {
	room := n.allocatable.Less(&n.requested)
	return n.unused.Exceeds(&room) != ""
}
