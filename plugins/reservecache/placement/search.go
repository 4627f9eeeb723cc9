package placement

// search is up to which point of freeing a claim has looked at the nodes of a set in vain.
type search struct {
	// looked is, by zone, the point up to which no freed node has room for the claim.
	looked map[string]uint64
	// passed is a span in which no node was freed that has room for a slot, in any zone.
	passed span
}

// span is the time from one point of freeing to another.
type span struct{ from, to uint64 }

// extendTo makes the span end at to. It begins at from unless it ended there, or later.
func (s *span) extendTo(from, to uint64) {
	if s.to < from {
		s.from = from
	}
	s.to = to
}

// searchOf returns the claim's search of a set of nodes.
func (c *claimState) searchOf(nodes *nodeSet) *search {
	s := c.searches[nodes]
	if s == nil {
		s = &search{looked: map[string]uint64{}}
		c.searches[nodes] = s
	}
	return s
}

// lookedUpTo is the point up to which no freed node of a zone has room for the claim.
func (s *search) lookedUpTo(zone string) uint64 {
	if at := s.looked[zone]; at < s.passed.from || at > s.passed.to {
		return at
	}
	return s.passed.to
}
