package placement

import (
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// noteOwnersLocked takes into account that other pods of claims are on a node of the ledger than before.
func (p *Planner) noteOwnersLocked(n *nodeRoom, before map[types.UID]ledger.Resources) {
	for uid, owned := range n.owned {
		if earlier := before[uid]; !earlier.Equal(&owned) {
			p.noteOwnersOfLocked(uid, n, int(earlier.Pods))
		}
	}
	for uid, earlier := range before {
		if _, still := n.owned[uid]; !still {
			p.noteOwnersOfLocked(uid, n, int(earlier.Pods))
		}
	}
}

// noteOwnersOfLocked is noteOwnersLocked for the pods of one claim, of which there were some before.
func (p *Planner) noteOwnersOfLocked(uid types.UID, n *nodeRoom, before int) {
	c := p.claims[uid]
	if c == nil {
		return
	}
	owned := n.ownedBy(uid)
	now := int(owned.Pods)
	switch {
	case c.Inclusive():
		p.touched[uid] = struct{}{}
		if c.HasSlots() {
			c.needsReconcile = true // what is used of the slots stays, and slots go to pods that run outside of them
			p.ledgerNodes.free(n)
		}
	case c.PerNode > 0 && now > before:
		c.needsReconcile = true // with its slots there may be too many
	case c.PerNode > 0 && now < before:
		p.ledgerNodes.free(n)
	}
}
