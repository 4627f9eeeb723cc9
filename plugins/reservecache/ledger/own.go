package ledger

import "k8s.io/apimachinery/pkg/types"

// OwnSlot returns the claim that has a slot for that one pod, and false when none has.
func (l *Ledger) OwnSlot(uid types.UID) (ClaimID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.own[uid]
	if h == nil {
		return ClaimID{}, false
	}
	return h.claim.spec.ID, true
}
