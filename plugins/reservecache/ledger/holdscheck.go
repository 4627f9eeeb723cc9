package ledger

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// oneEachLocked refuses a second slot for one pod, be it of this claim or of another.
func (l *Ledger) oneEachLocked(c *claim, changes []change, all bool) error {
	slots := map[types.UID]int{}
	for i := range changes {
		s := &changes[i].slot
		if s.For == "" {
			continue
		}
		slots[s.For] += s.Count
		h := l.own[s.For]
		switch {
		case slots[s.For] > 1:
		case s.Count == 0 || h == nil || h.node == changes[i].node && h.claim.spec.ID == c.spec.ID:
			continue
		case h.claim.spec.ID == c.spec.ID && (all || dropped(changes, h)):
			continue
		}
		return fmt.Errorf("%w: %s wants a second slot for the pod %s", ErrBadSlot, c.spec.Name, s.For)
	}
	return nil
}

func dropped(changes []change, h *hold) bool {
	return slices.ContainsFunc(changes, func(ch change) bool { return ch.old == h && ch.slot.Count == 0 })
}

// gainsOf sums the changes by node.
func gainsOf(changes []change) map[*node]*gain {
	gains := make(map[*node]*gain, len(changes))
	for i := range changes {
		ch := &changes[i]
		g := gains[ch.node]
		if g == nil {
			g = &gain{}
			gains[ch.node] = g
		}
		g.add(ch)
	}
	return gains
}

// roomLocked checks the nodes on which a claim is to have more than it had.
func (l *Ledger) roomLocked(spec *Claim, changes []change) error {
	gains := gainsOf(changes)
	// The first that lacks something, in the order given, is named.
	for i := range changes {
		n := changes[i].node
		if name := gains[n].lacking(spec, n); name != "" {
			return fmt.Errorf("%w of %s: node %q lacks %s", ErrNoRoom, spec.Name, n.name, name)
		}
	}
	return nil
}

// gain is what a claim gets on a node beyond what it has.
type gain struct {
	more Resources
	seen *Seen
}

func (g *gain) add(ch *change) {
	g.more.add(&ch.slot.Requests, int64(ch.slot.Count-ch.kept))
	if ch.old != nil {
		g.more.add(&ch.old.requests, -int64(ch.old.unused()))
	}
	if ch.slot.Seen != nil {
		g.seen = ch.slot.Seen
	}
}

// lacking returns the first resource of which the claim gets more than there is room for, or nothing.
func (g *gain) lacking(spec *Claim, n *node) v1.ResourceName {
	if exceeds(&g.more, &g.more, &Resources{}) == "" {
		return ""
	}
	allocatable, requested := &n.allocatable, &n.requested
	var present func(types.UID) bool
	if g.seen != nil {
		allocatable, requested, present = &g.seen.Allocatable, &g.seen.Requested, g.seen.Present
	}
	room := n.held.Room(allocatable, requested, spec, present)
	return exceeds(&g.more, &g.more, &room)
}

// overrides reports whether a claim may take the space of another one.
func overrides(claim, other *Claim) bool {
	return claim.ID.Kind == Gang && claim.Priority > other.Priority && claim.ID != other.ID
}

// turnLocked refuses a gang that would get some of its slots, and not all, ahead of an older claim.
func (l *Ledger) turnLocked(spec *Claim, changes []change, c *claim) error {
	if spec.ID.Kind != Gang || !spec.Filling {
		return nil
	}
	slots, grown := 0, 0
	if c != nil {
		slots = c.slots
	}
	for i := range changes {
		was := 0
		if changes[i].old != nil {
			was = changes[i].old.slots
		}
		slots += changes[i].slot.Count - was
		grown += max(0, changes[i].slot.Count-was)
	}
	if grown == 0 || slots >= spec.Wanted {
		return nil
	}
	if older := l.olderUnfilledLocked(spec, Gang); older != nil {
		return fmt.Errorf("%w: %s", ErrNotItsTurn, older.Name)
	}
	return nil
}
