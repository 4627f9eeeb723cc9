package ledger

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Admission is what AssumePodOnHold checks a pod against.
type Admission struct {
	Asker
	// Requested and Allocatable are those of the node in the snapshot of the scheduling cycle, without the
	// pod itself. They count, and not the ledger's, which may trail the scheduler's cache.
	Requested, Allocatable Resources
	// Present says which pods are on the node in that snapshot. It is called under the ledger's lock and
	// must not call the ledger.
	Present func(types.UID) bool
}

// AssumePodOnHold does what AssumePod does if the holds of the node leave room for the pod, by the rule of
// [Fits]. If the pod needs a slot, or takes one first, it is recorded as its consumer; AssumePodOnHold
// returns the claim then and the zero ClaimID otherwise. ForgetPod, ExpirePod, RemovePod and an Add on
// another node make the slot unused again.
//
// It fails as AssumePod does, with ErrHeld, naming the claim that is in the way, and with ErrNoSlot.
func (l *Ledger) AssumePodOnHold(object *v1.Pod, nodeName string, adm *Admission, now time.Time) (ClaimID, error) {
	if object.UID == "" {
		return ClaimID{}, ErrNoUID
	}
	if nodeName == "" {
		return ClaimID{}, ErrNoNode
	}
	requests := podRequests(object, l.opts.Requests)
	adm.UID = object.UID

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.unknownLocked(object.UID); err != nil {
		return ClaimID{}, err
	}
	n := l.nodes[nodeName]
	var held *NodeHolds
	if n != nil {
		held = n.held
	}
	verdict := Fits(&requests, &adm.Allocatable, &adm.Requested, held, &adm.Asker, adm.Present)
	switch {
	case verdict.Fits:
	case verdict.By != nil:
		return ClaimID{}, fmt.Errorf("%w by %s: node %q lacks %s", ErrHeld, verdict.By.Name, nodeName, verdict.Resource)
	default:
		return ClaimID{}, fmt.Errorf("%w on node %q", ErrNoSlot, nodeName)
	}
	p := &pod{object: object, requests: requests, assumption: &assumption{since: now}}
	if verdict.Slot == nil {
		l.assumeLocked(p, nodeName)
		return ClaimID{}, nil
	}
	h := l.claims[verdict.Slot.Claim.ID].holds[holdKey{node: nodeName, pod: verdict.Slot.For}]
	if h.pod == "" {
		// A consumer that has left the node of the cycle but not yet the ledger makes room for this one.
		if h.unused() == 0 {
			gone := slices.IndexFunc(h.consumers, func(old *pod) bool { return !adm.Present(old.object.UID) })
			l.leaveSlotLocked(h.consumers[gone])
		}
		l.takeSlotLocked(p, h)
		l.heldLocked(n)
	}
	// A slot of its own is the pod's by its being there.
	l.assumeLocked(p, nodeName)
	return h.claim.spec.ID, nil
}

// takeSlotLocked makes a pod a consumer of a hold, and of no other. The caller publishes the node's holds.
func (l *Ledger) takeSlotLocked(p *pod, h *hold) {
	if p.hold != nil {
		l.leaveSlotLocked(p)
	}
	p.hold = h
	h.consumers = append(h.consumers, p)
	h.claim.used++
	l.newsLocked(h.claim).Changed = true
}

// leaveSlotLocked makes the slot that a pod uses unused.
func (l *Ledger) leaveSlotLocked(p *pod) {
	h := p.hold
	p.hold = nil
	i := slices.Index(h.consumers, p)
	h.consumers = slices.Delete(h.consumers, i, i+1)
	h.claim.used--
	l.heldLocked(h.node)
	l.newsLocked(h.claim).Changed = true
}

// Requests returns what a pod takes from its node, by the ledger's rules.
func (l *Ledger) Requests(object *v1.Pod) Resources {
	return podRequests(object, l.opts.Requests)
}
