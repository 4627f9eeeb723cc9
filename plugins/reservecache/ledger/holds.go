package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PlaceHolds makes the slots of a claim exactly the given ones, in one step: all of them or, with an error,
// none, and the claim is as it was. The claim is registered, or replaced by this version of it. Consumers of
// a slot that stays stay with it; where fewer slots are left than there were consumers, the oldest become
// ordinary pods.
//
// A node on which the claim is to have more than it had is checked: what pods take and what is unused of
// this claim and others must fit, in each resource of which the claim gets more. A gang stands for its pods,
// so that it does not mind claims of a lower priority; reservations mind each other's slots whatever their
// priorities.
//
// It returns the nodes, sorted, on which less is held than before. It fails with ErrNoRoom, naming node and
// resource, with ErrNotItsTurn, and with ErrBadSlot.
func (l *Ledger) PlaceHolds(c Claim, slots []Slot) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changeLocked(&c, slots, true)
}

// ChangeHolds does what PlaceHolds does to the given nodes only, and leaves the slots of the claim on all
// other nodes alone. A Count of 0 drops a slot.
//
// It fails with ErrNoClaim when the claim is not registered.
func (l *Ledger) ChangeHolds(id ClaimID, slots []Slot) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[id]
	if c == nil {
		return nil, ErrNoClaim
	}
	return l.changeLocked(c.spec, slots, false)
}

// SetClaim registers a claim without slots, or replaces a registered one by this version of it and leaves its
// slots alone.
//
// It fails with ErrBadSlot for a claim without identity.
func (l *Ledger) SetClaim(c Claim) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.changeLocked(&c, nil, false)
	return err
}

// changeLocked checks a change and makes it.
func (l *Ledger) changeLocked(spec *Claim, slots []Slot, all bool) ([]string, error) {
	if spec.ID.UID == "" || spec.ID.Kind == "" {
		return nil, fmt.Errorf("%w: the claim %q has no identity", ErrBadSlot, spec.Name)
	}
	c := l.claims[spec.ID]
	next := claim{spec: spec}
	if c != nil {
		next.slots, next.used, next.holds = c.slots, c.used, c.holds
	}
	changes, err := l.resolveLocked(&next, slots, all)
	if err != nil {
		return nil, err
	}
	if err := l.roomLocked(spec, changes); err != nil {
		return nil, err
	}
	if err := l.turnLocked(spec, changes, c); err != nil {
		return nil, err
	}
	if c == nil {
		c = &claim{holds: map[holdKey]*hold{}}
		l.claims[spec.ID] = c
	}
	renamed := c.spec != nil && c.spec != spec
	c.spec = spec
	l.claimsVersion++
	freed := l.applyLocked(c, changes)
	if renamed {
		// The holds that readers see carry the claim.
		for _, h := range c.holds {
			l.heldLocked(h.node)
		}
	}
	return freed, nil
}

// change is what is to become of one hold.
type change struct {
	slot Slot
	node *node
	// old is nil for a hold that is new.
	old *hold
	// kept is how many of the consumers stay.
	kept int
}

// resolveLocked finds the holds that slots are about.
func (l *Ledger) resolveLocked(c *claim, slots []Slot, all bool) ([]change, error) {
	changes := make([]change, 0, len(slots))
	seen := make(map[holdKey]struct{}, len(slots))
	for _, s := range slots {
		key := holdKey{node: s.Node, pod: s.For}
		if _, twice := seen[key]; twice {
			return nil, fmt.Errorf("%w: %s names node %q twice", ErrBadSlot, c.spec.Name, s.Node)
		}
		seen[key] = struct{}{}
		if s.Count < 0 || s.Settle < 0 || s.For != "" && s.Count > 1 {
			return nil, fmt.Errorf("%w: %s wants %d slots on node %q", ErrBadSlot, c.spec.Name, s.Count, s.Node)
		}
		if r := negative(&s.Requests); r != "" {
			return nil, fmt.Errorf("%w: %s wants less than nothing of %s", ErrBadSlot, c.spec.Name, r)
		}
		s.Requests = s.Requests.Clone()
		s.Requests.Pods = 1
		ch := change{slot: s, node: l.nodes[s.Node], old: c.holds[key]}
		if s.Count > 0 && (ch.node == nil || ch.node.ghost()) {
			return nil, fmt.Errorf("%w of %s: node %q is gone", ErrNoRoom, c.spec.Name, s.Node)
		}
		if ch.old == nil && s.Count == 0 {
			continue
		}
		switch {
		case s.For != "":
			if p := l.pods[s.For]; p != nil && p.node == ch.node {
				ch.kept = s.Count
			}
		case ch.old != nil:
			ch.kept = min(max(0, len(ch.old.consumers)-s.Settle), s.Count)
		}
		changes = append(changes, ch)
	}
	if err := l.oneEachLocked(c, changes, all); err != nil {
		return nil, err
	}
	if !all {
		return changes, nil
	}
	for key, h := range c.holds {
		if _, stays := seen[key]; !stays {
			changes = append(changes, change{slot: Slot{Node: key.node, For: key.pod}, node: h.node, old: h})
		}
	}
	return changes, nil
}

// applyLocked makes checked changes and returns the nodes on which less is held than before.
func (l *Ledger) applyLocked(c *claim, changes []change) []string {
	var freed []string
	for n, g := range gainsOf(changes) {
		if g.more.Pods < 0 || negative(&g.more) != "" {
			freed = append(freed, n.name)
		}
	}
	for i := range changes {
		l.setHoldLocked(c, &changes[i])
	}
	// A node is published once, after the last of its changes.
	done := make(map[*node]struct{}, len(changes))
	for i := range changes {
		n := changes[i].node
		if _, twice := done[n]; twice {
			continue
		}
		done[n] = struct{}{}
		l.heldLocked(n)
	}
	slices.Sort(freed)
	return freed
}

// setHoldLocked makes one change to the records of a claim and a node.
func (l *Ledger) setHoldLocked(c *claim, ch *change) {
	h := ch.old
	if h == nil {
		h = &hold{claim: c, node: ch.node, pod: ch.slot.For}
		c.holds[h.key()] = h
		ch.node.holds = append(ch.node.holds, h)
	}
	if drop := len(h.consumers) - ch.kept; drop > 0 {
		for _, p := range h.consumers[:drop] {
			p.hold = nil
		}
		h.consumers = slices.Delete(h.consumers, 0, drop)
		c.used -= drop
	}
	c.slots += ch.slot.Count - h.slots
	h.slots, h.requests = ch.slot.Count, ch.slot.Requests
	if h.pod != "" && h.slots > 0 {
		l.own[h.pod] = h
		if p := l.pods[h.pod]; p != nil && p.node == h.node && p.hold != h {
			l.takeSlotLocked(p, h)
		}
	}
	if h.slots == 0 {
		delete(c.holds, h.key())
		if l.own[h.pod] == h {
			delete(l.own, h.pod)
		}
		n := h.node
		n.holds = slices.DeleteFunc(n.holds, func(other *hold) bool { return other == h })
	}
}

// ReleaseHolds drops a claim with all its slots and returns the nodes, sorted, on which less is held than
// before. Pods that used a slot become ordinary pods. It does nothing to a claim that is not there.
func (l *Ledger) ReleaseHolds(id ClaimID) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[id]
	if c == nil {
		return nil
	}
	return l.releaseLocked(c)
}

func (l *Ledger) releaseLocked(c *claim) []string {
	delete(l.claims, c.spec.ID)
	delete(l.news, c.spec.ID)
	l.claimsVersion++
	return l.dropHoldsLocked(c, func(*hold) bool { return true })
}

// ReleaseMember drops the slots of a claim that are for one pod, as ReleaseHolds does, and leaves the claim
// registered.
func (l *Ledger) ReleaseMember(id ClaimID, uid types.UID) []string {
	return l.releaseSome(id, func(h *hold) bool { return h.pod == uid })
}

// ReleaseNode drops the slots of a claim on one node, as ReleaseHolds does, and leaves the claim registered.
func (l *Ledger) ReleaseNode(id ClaimID, nodeName string) []string {
	return l.releaseSome(id, func(h *hold) bool { return h.node.name == nodeName })
}

func (l *Ledger) releaseSome(id ClaimID, which func(*hold) bool) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[id]
	if c == nil {
		return nil
	}
	return l.dropHoldsLocked(c, which)
}

// dropHoldsLocked drops those of a claim's holds.
func (l *Ledger) dropHoldsLocked(c *claim, which func(*hold) bool) []string {
	var changes []change
	for _, key := range slices.SortedFunc(maps.Keys(c.holds), compareKeys) {
		if h := c.holds[key]; which(h) {
			changes = append(changes, change{slot: Slot{Node: key.node, For: key.pod}, node: h.node, old: h})
		}
	}
	return l.applyLocked(c, changes)
}

func compareKeys(a, b holdKey) int {
	if d := strings.Compare(a.node, b.node); d != 0 {
		return d
	}
	return strings.Compare(string(a.pod), string(b.pod))
}

// Released is a claim that ended by its deadline.
type Released struct {
	Claim Claim
	// Nodes are those on which less is held than before, sorted.
	Nodes []string
}

// ExpireHolds drops the claims whose deadline is not after now, as ReleaseHolds does, the oldest first.
func (l *Ledger) ExpireHolds(now time.Time) []Released {
	l.mu.Lock()
	defer l.mu.Unlock()
	var expired []*claim
	for _, c := range l.claims {
		if d := c.spec.Deadline; !d.IsZero() && !d.After(now) {
			expired = append(expired, c)
		}
	}
	slices.SortFunc(expired, func(a, b *claim) int { return compareAge(a.spec, b.spec) })
	released := make([]Released, 0, len(expired))
	for _, c := range expired {
		released = append(released, Released{Claim: *c.spec, Nodes: l.releaseLocked(c)})
	}
	return released
}

// NextDeadline returns the earliest deadline of any claim, and false when none has one.
func (l *Ledger) NextDeadline() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next time.Time
	for _, c := range l.claims {
		if d := c.spec.Deadline; !d.IsZero() && (next.IsZero() || d.Before(next)) {
			next = d
		}
	}
	return next, !next.IsZero()
}

// olderUnfilledLocked returns the oldest unfilled claim of a kind that is older than c, or nil.
func (l *Ledger) olderUnfilledLocked(c *Claim, kind ClaimKind) *Claim {
	var oldest *Claim
	for _, other := range l.claims {
		if other.spec.ID.Kind == kind && other.spec.ID != c.ID && other.unfilled() && compareAge(other.spec, c) < 0 &&
			(oldest == nil || compareAge(other.spec, oldest) < 0) {
			oldest = other.spec
		}
	}
	return oldest
}
