package gang

import "time"

// partial reports whether the gang is bound in part, and nothing is on its way that would change that.
func (g *Gang) partial() bool {
	return g.valid() && g.bound() > 0 && g.committedOrLater() < g.MinMember() && g.phase != Releasing
}

// settleRecovery notes since when the gang has been bound in part.
func (g *Gang) settleRecovery(now time.Time) {
	switch {
	case !g.partial():
		// A release that is rolled back leaves the gang as it was.
		if g.phase != Releasing {
			g.partialSince = time.Time{}
		}
	case g.partialSince.IsZero():
		g.partialSince = now
	}
}

// strandedAt is when the gang counts as stranded if nothing changes. Members that have come only now, to a gang that
// was bound in part before, have time for a round of their own.
func (g *Gang) strandedAt() time.Time {
	at := g.partialSince.Add(g.config.RecoveryTimeout)
	if own := g.readySince.Add(min(g.config.RecoveryTimeout, g.Timeout())); g.phase != Pending && own.After(at) {
		return own
	}
	return at
}

// PartlyBound reports whether the gang has been bound in part for Config.RecoveryTimeout: the other members of the
// quorum cannot join those that are bound, or do not exist.
func (g *Gang) PartlyBound(now time.Time) bool {
	return g.count[memberBound] > 0 && g.partial() && !g.partialSince.IsZero() && !now.Before(g.strandedAt())
}
