package placement

import v1 "k8s.io/api/core/v1"

// fitTally counts the nodes that a fit selects, and those that may take slots, by zone. All claims of one fit share it.
type fitTally struct {
	fit   *Fit
	zones map[string]*tally
}

// tally counts the nodes of a zone: those that are selected, and of these those that may take slots.
type tally struct{ selected, usable int }

// tallyLocked counts the nodes under a fit.
func (p *Planner) tallyLocked(fit *Fit) {
	if p.fits[fit.key] != nil {
		return
	}
	t := &fitTally{fit: fit, zones: map[string]*tally{}}
	p.fits[fit.key] = t
	for _, n := range p.ledgerNodes.byName {
		t.add(n.countedAs, 1)
	}
}

// add counts a node, or no longer; nil is no node. It reports whether a zone came to have usable or selected nodes, or
// ceased to.
func (t *fitTally) add(n *v1.Node, sign int) bool {
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
	changes := p.ledgerNodes.changes
	if len(changes.toTally) == 0 {
		return
	}
	for _, t := range p.fits {
		changed := false
		for _, n := range changes.toTally {
			left, came := t.add(n.countedAs, -1), t.add(n.presentObject(), 1)
			changed = changed || left || came
		}
		if !changed {
			continue
		}
		for _, c := range p.queue {
			c.dirty = c.dirty || c.Fit.key == t.fit.key
		}
	}
	for _, n := range changes.toTally {
		n.tallyQueued, n.countedAs = false, n.presentObject()
	}
	clear(changes.toTally)
	changes.toTally = changes.toTally[:0]
}
