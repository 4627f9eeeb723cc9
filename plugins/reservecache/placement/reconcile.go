package placement

import "slices"

// looksPerSlice limits how many nodes Reconcile looks at while others wait for the lock: one claim's search of a large
// cluster.
const looksPerSlice = 5000

// Reconcile repairs what changed claims hold by the nodes of the ledger, the oldest claim first: it gives up slots
// that may not stay, places missing ones, and gives up surplus ones, in one draft for each claim. Slots that may stay
// where they are stay. What was freed it offers to the claims that lack something, to the older ones before a younger
// one is repaired. It works for a slice of time, and says whether there is more to do.
//
// read returns the nodes as they are when it is called. It is called again if one has changed that was about to get
// slots: a pod may have taken the room. lags, which may be nil, reports whether the view of a node is known to be
// behind the API server: what has no room there is then left alone, until it is not.
func (p *Planner) Reconcile(read func() View, lags func(node string) bool) Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.noteNothingToCollectLocked()
	var result Result
	p.countTakenLocked()
	nodes := p.ledgerNodes
	p.updateLocked(nodes, read, false)
	p.refreshNominationsLocked(0)
	p.inspectLocked(lags, &result)
	p.recountNodesLocked()
	p.uncapLocked()
	looks := p.reconcileByAgeLocked(&result)
	// Others may take what one gave up, and what became free.
	upTo := nodes.freeings
	if nodes.offeredUpTo != upTo && !p.offerLocked(nil, &looks, &result) {
		result.More = true
		return result
	}
	for _, n := range nodes.changes.toReconcile { // freed by this pass
		p.requestReconcileOfFollowersLocked(n)
	}
	result.More = p.anyToReconcileLocked() || nodes.offeredUpTo != upTo && nodes.freeings != upTo
	if !result.More {
		nodes.offeredUpTo = upTo
	}
	return result
}

// reconcileByAgeLocked reconciles the claims that need it. One whose draft cannot be recorded waits for the next call,
// so that it does not hold up others. It returns how many nodes it looked at.
func (p *Planner) reconcileByAgeLocked(result *Result) (looks int) {
	offeredUpTo := p.ledgerNodes.offeredUpTo
	for _, c := range p.byAge {
		for recorded := true; recorded && c.needsReconcile; {
			if upTo := p.ledgerNodes.freeings; upTo != offeredUpTo {
				if !p.offerLocked(c, &looks, result) {
					return looks
				}
				offeredUpTo = upTo
			}
			if looks >= looksPerSlice {
				return looks
			}
			c.needsReconcile = false
			var more int
			more, recorded = p.reconcileLocked(c, result)
			looks += 1 + more
		}
	}
	return looks
}

// offerLocked offers what was freed to the claims that lack something and are older than another, which may be nil:
// to all then. The oldest comes first. It adds to looks how many nodes it looked at, and reports false if there is more
// to do than one slice allows.
func (p *Planner) offerLocked(than *claimState, looks *int, result *Result) bool {
	mayHave := func(c *claimState) bool { return than == nil || compareAge(c, than) < 0 }
	if s := p.seekersLocked(); len(s.claims) == 0 || !mayHave(s.claims[0]) {
		return true
	}
	for _, c := range p.interestedLocked(p.ledgerNodes) {
		if !mayHave(c) {
			break
		}
		if *looks >= looksPerSlice {
			return false
		}
		if !c.needsReconcile {
			*looks += p.collectLocked(c, p.ledgerNodes, 0, result)
		}
	}
	return true
}

func (p *Planner) reconcileLocked(c *claimState, result *Result) (looks int, recorded bool) {
	if c.HasSlots() {
		return p.reconcileSlotsLocked(c, result)
	}
	return p.reconcileAmountsLocked(c, result)
}

func (p *Planner) nextToReconcileLocked() *claimState {
	for _, c := range p.byAge {
		if c.needsReconcile {
			return c
		}
	}
	return nil
}

func (p *Planner) anyToReconcileLocked() bool { return p.nextToReconcileLocked() != nil }

// inspectLocked looks at the changed nodes, and has the claims reconciled that hold something on a node which is
// gone, too full, or may have changed in what they require.
func (p *Planner) inspectLocked(lags func(string) bool, result *Result) {
	ofAmounts := slices.DeleteFunc(slices.Clone(p.byAge), func(c *claimState) bool { return c.HasSlots() })
	changed := &p.ledgerNodes.changes.toReconcile
	for _, n := range *changed {
		n.reconcileQueued = false
		p.inspectNodeLocked(n, ofAmounts)
	}
	clear(*changed)
	*changed = (*changed)[:0]
	for n := range p.tooFull {
		if lags == nil || !lags(n.name) {
			delete(p.tooFull, n)
			p.giveUpExcessLocked(n, result)
		}
	}
}

func (p *Planner) inspectNodeLocked(n *nodeRoom, ofAmounts []*claimState) {
	if seen := p.cycleNodes.byName[n.name]; seen != nil && seen.gone && n.zone != nil {
		p.cycleNodes.setBack(seen)
	}
	for _, c := range ofAmounts {
		if !p.asDesiredLocked(c, n) {
			c.requestReconcile(n.name)
		}
	}
	if n.objectChanged {
		p.requestReconcileOfHoldersLocked(n.name)
		for uid := range n.owned { // slots follow owners on a node that is ready again
			if c := p.claims[uid]; c != nil {
				c.requestReconcile(n.name)
			}
		}
	}
	delete(p.tooFull, n)
	p.requestReconcileOfFollowersLocked(n)
	if n.zone == nil {
		return
	}
	p.requestReconcileOfMisplacedLocked(n)
	if n.isTooFull() {
		p.tooFull[n] = struct{}{}
	}
}

// requestReconcileOfMisplacedLocked has Reconcile look at slots on a node that may not have them, or that are recorded
// in another zone than the node's: a cycle that saw an older object of the node may have placed them.
func (p *Planner) requestReconcileOfMisplacedLocked(n *nodeRoom) {
	if n.held == nil {
		return
	}
	for i := range n.held.Holds {
		c := p.claims[n.held.Holds[i].Claim.UID]
		if c == nil || !c.HasSlots() {
			continue
		}
		if !c.Requirements.MetBy(n.object) || p.holds.StatusOn(c.UID, n.name).Zone != n.zone.name {
			c.requestReconcile(n.name)
		}
	}
}

// requestReconcileOfFollowersLocked has Reconcile move unused slots of inclusive claims to a node on which their pods
// run outside of slots, if it has room now. Such a claim may seek no room: it has all its slots.
func (p *Planner) requestReconcileOfFollowersLocked(n *nodeRoom) {
	for uid, owned := range n.owned {
		c := p.claims[uid]
		if n.zone == nil || c == nil || !c.HasSlots() || !c.Inclusive() {
			continue
		}
		slots := 0
		if own := n.held.Of(uid); own != nil {
			slots = int(own.Amount.Pods)
		}
		in := c.counts[n.zone.name]
		if int(owned.Pods) > slots && in.used < in.slots && p.hasRoomForLocked(c, p.ledgerNodes, n) {
			c.requestReconcile(n.name)
		}
	}
}

// giveUpExcessLocked has claims give up what has no room on a node.
func (p *Planner) giveUpExcessLocked(n *nodeRoom, result *Result) {
	for _, e := range n.held.Excess(&n.allocatable, &n.requested, n.ownedBy) {
		if c := p.claims[e.Claim]; c != nil {
			c.requestReconcile(n.name)
			c.excess[n.name], c.wereTooFull[n.name] = e.Amount, true
			result.GivenUp = append(result.GivenUp, GivenUp{Claim: e.Claim, Node: n.name, Amount: e.Amount})
		}
	}
}

// isTooFull reports whether what is unused on a node has no room beside its pods.
func (n *nodeRoom) isTooFull() bool {
	room := n.allocatable.Minus(&n.requested)
	return n.unused.Exceeds(&room) != ""
}
