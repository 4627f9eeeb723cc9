package placement

import "slices"

// The planner has the nodes from two sources, which hear of events at different times. What is decided for both follows
// the ledger; a node that only the cycles see yet keeps what is held on it.

// nodeLocked returns a node as the ledger has it, or as only the cycles do yet; nil for one that the ledger has
// removed.
func (p *Planner) nodeLocked(name string) *nodeRoom {
	if n := p.ledgerNodes.byName[name]; n != nil {
		return n
	}
	return p.cycleNodes.present(name)
}

// freeLocked records for both sources that a node may have room at which claims have not looked.
func (p *Planner) freeLocked(name string) {
	for _, nodes := range []*nodeSet{p.ledgerNodes, p.cycleNodes} {
		if n := nodes.byName[name]; n != nil {
			nodes.free(n)
		}
	}
}

// updateLocked makes one of the sets equal to what read returns, or to its recent nodes. It reports whether it gave
// Reconcile something to do.
func (p *Planner) updateLocked(nodes *nodeSet, read func() View, all bool) (requested bool) {
	nodes.update(read, all)
	return p.forgetRemovedLocked()
}

// forgetRemovedLocked has Reconcile look at what was held on nodes that are gone, and reports whether there are any.
// A node that the ledger has removed does not exist, whatever the cycles see yet.
func (p *Planner) forgetRemovedLocked() (requested bool) {
	for _, removed := range p.ledgerNodes.removed {
		if n := p.cycleNodes.byName[removed.name]; n != nil && n.object.UID == removed.object.UID {
			p.cycleNodes.setGone(n)
		}
	}
	for _, n := range slices.Concat(p.ledgerNodes.removed, p.cycleNodes.removed) {
		if p.nodeLocked(n.name) == nil {
			delete(p.nominated, n.name)
			p.requestReconcileOfHoldersLocked(n.name)
			requested = true
		}
	}
	p.ledgerNodes.removed, p.cycleNodes.removed = nil, nil
	if p.ledgerNodes.moved || p.cycleNodes.moved {
		p.ledgerNodes.moved, p.cycleNodes.moved = false, false
		p.cyclesSeeMoreNodes = slices.ContainsFunc(p.cycleNodes.order, func(n *nodeRoom) bool {
			return p.ledgerNodes.byName[n.name] == nil
		})
	}
	return requested
}

// requestReconcileOfHoldersLocked has Reconcile look at what each claim has on a node.
func (p *Planner) requestReconcileOfHoldersLocked(nodeName string) {
	held := p.holds.Node(nodeName)
	if held == nil {
		return
	}
	for i := range held.Holds {
		if c := p.claims[held.Holds[i].Claim.UID]; c != nil {
			c.requestReconcile(nodeName)
		}
	}
}
