package placement

import v1 "k8s.io/api/core/v1"

// nodeCounts counts the nodes of the ledger under requirements, by zone. All claims with equal requirements share it.
type nodeCounts struct {
	requirements *NodeRequirements
	zones        map[string]*zoneCount
}

// zoneCount counts the nodes of a zone: those that the node selector selects, and of these those that may have slots.
type zoneCount struct{ selected, usable int }

// countNodesLocked counts the nodes under requirements, unless that has been done.
func (p *Planner) countNodesLocked(requirements *NodeRequirements) {
	if p.nodeCounts[requirements.Key()] != nil {
		return
	}
	counts := &nodeCounts{requirements: requirements, zones: map[string]*zoneCount{}}
	p.nodeCounts[requirements.Key()] = counts
	for _, n := range p.ledgerNodes.byName {
		counts.add(n.countedAs, 1)
	}
}

// add counts a node, or no longer; nil is no node. It reports whether a zone came to have usable or selected nodes, or
// lost the last one.
func (c *nodeCounts) add(n *v1.Node, sign int) bool {
	if n == nil {
		return false
	}
	name, unmet := n.Labels[v1.LabelTopologyZone], c.requirements.Unmet(n)
	zone := c.zones[name]
	if zone == nil {
		zone = &zoneCount{}
		c.zones[name] = zone
	}
	before := *zone
	if unmet != NotSelected {
		zone.selected += sign
	}
	if unmet == "" {
		zone.usable += sign
	}
	if *zone == (zoneCount{}) {
		delete(c.zones, name)
	}
	return (before.usable > 0) != (zone.usable > 0) || (before.selected > 0) != (zone.selected > 0)
}

// recountNodesLocked counts the nodes again whose objects have changed, and has the claims reconciled for which a
// zone came to have nodes or lost its last one.
func (p *Planner) recountNodesLocked() {
	changes := p.ledgerNodes.changes
	if len(changes.toRecount) == 0 {
		return
	}
	for _, counts := range p.nodeCounts {
		changed := false
		for _, n := range changes.toRecount {
			left, came := counts.add(n.countedAs, -1), counts.add(n.presentObject(), 1)
			changed = changed || left || came
		}
		if !changed {
			continue
		}
		for _, c := range p.byAge {
			c.needsReconcile = c.needsReconcile || c.Requirements.Key() == counts.requirements.Key()
		}
	}
	for _, n := range changes.toRecount {
		n.objectChanged, n.countedAs = false, n.presentObject()
	}
	clear(changes.toRecount)
	changes.toRecount = changes.toRecount[:0]
}
