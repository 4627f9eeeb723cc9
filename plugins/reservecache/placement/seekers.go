package placement

import "zonewise.dev/plugins/reservecache/ledger"

// seekers are the claims that lack slots. They are listed again only after others lack some: each cycle asks for them.
type seekers struct {
	// changed is set when other claims lack slots than when they were listed.
	changed bool
	// claims are sorted by age, the oldest first; inclusive are those of them that are.
	claims, inclusive []*claimState
	// least is no more than the slot of any claim that is not inclusive. Such a slot takes the same room on every node.
	least ledger.Resources
	// interested is what interestedLocked returned last.
	interested []*claimState
}

// seekersLocked returns the claims that lack slots.
func (p *Planner) seekersLocked() *seekers {
	s := &p.seekers
	if !s.changed {
		return s
	}
	// What was too little room was so for those that lacked slots at the time.
	s.passTooSmall(p.ledgerNodes)
	s.passTooSmall(p.cycleNodes)
	clear(s.claims)
	clear(s.inclusive)
	clear(s.interested)
	*s = seekers{claims: s.claims[:0], inclusive: s.inclusive[:0], interested: s.interested[:0]}
	beside := 0
	for _, c := range p.byAge {
		if !c.seeksRoom() {
			continue
		}
		s.claims = append(s.claims, c)
		if c.Inclusive() {
			s.inclusive = append(s.inclusive, c)
			continue
		}
		if beside++; beside == 1 {
			s.least = c.Slot.Clone()
		}
		s.least.SetMin(&c.Slot)
	}
	return s
}

func (p *Planner) anySeekerLocked() bool { return len(p.seekersLocked().claims) > 0 }

// passTooSmall tells the claims that are not inclusive of the nodes that were too small for each of them.
func (s *seekers) passTooSmall(nodes *nodeSet) {
	if nodes.tooSmall == (span{}) {
		return
	}
	for _, c := range s.claims {
		if !c.Inclusive() {
			c.searchOf(nodes).passed.extendTo(nodes.tooSmall.from, nodes.tooSmall.to)
		}
	}
	nodes.tooSmall = span{}
}

// interestedLocked returns the claims for which nodes that were freed since they were last offered may have room, the
// oldest first. If few were freed, claims with slots larger than all of them are left out, in one step if no slot is
// small enough. The slice is good until the next call.
func (p *Planner) interestedLocked(nodes *nodeSet) []*claimState {
	s := p.seekersLocked()
	most, few := nodes.maxRoomSince(nodes.offeredUpTo, looksPerClaim)
	if few && s.least.Exceeds(&most) != "" {
		nodes.tooSmall.extendTo(nodes.offeredUpTo, nodes.freeings)
		return s.inclusive
	}
	s.passTooSmall(nodes)
	if !few {
		return s.claims
	}
	clear(s.interested)
	s.interested = s.interested[:0]
	for _, c := range s.claims {
		if !c.Inclusive() && c.Slot.Exceeds(&most) != "" {
			c.searchOf(nodes).passed.extendTo(nodes.offeredUpTo, nodes.freeings)
			continue
		}
		s.interested = append(s.interested, c)
	}
	return s.interested
}
