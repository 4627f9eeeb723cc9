package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Preparing returns how many members have been let go, and can still be sent back.
func (g *Gang) Preparing() int { return g.preparing() }

// Holds reports whether a member holds something that its rejection would free: from Permit until its bind
// is on the way or it is unreserved.
func (g *Gang) Holds(uid types.UID) bool {
	m, known := g.members[uid]
	return known && m.holds
}

// Settle lets the time be now, and nothing else happen.
func (g *Gang) Settle(now time.Time) { g.settle(now) }
