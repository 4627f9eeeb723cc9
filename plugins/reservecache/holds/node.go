package holds

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// NodeHolds is what is held on one node. It never changes. A nil NodeHolds holds nothing.
type NodeHolds struct {
	Node string
	// Holds are sorted by who keeps its slots where there is not room for all: by the priority of their claims, highest
	// first, then by the age, oldest first.
	Holds []Hold

	// amounts is the sum over all holds, and lowest the lowest priority of their claims.
	amounts ledger.Resources
	lowest  int32
}

// Hold is what one claim has on a node.
type Hold struct {
	Claim *Claim
	// Amount is all that is held. Amount.Pods is the number of slots, if the claim has slots.
	Amount ledger.Resources
}

// slots returns what n of the hold's slots have. While a claim changes their size, that is not the claim's.
func (h *Hold) slots(n int64) (part ledger.Resources) {
	for name := range h.Amount.Named() {
		part.Put(name, h.slotOf(name)*n)
	}
	return part
}

// slotOf is how much of a resource each of the hold's slots has; 0 if it has none.
func (h *Hold) slotOf(name v1.ResourceName) int64 {
	return h.Amount.Amount(name) / max(1, h.Amount.Pods)
}

// Owned returns what the pods of a claim on a node ask for together; its Pods is their number. A nil Owned means that
// no claim has pods there.
type Owned func(claim types.UID) ledger.Resources

func (o Owned) of(claim types.UID) ledger.Resources {
	if o == nil {
		return ledger.Resources{}
	}
	return o(claim)
}

// Unused returns what the claim's pods leave of what is held. The result may share its map with the hold.
func (h *Hold) Unused(owned Owned) ledger.Resources {
	if !h.Claim.Inclusive() {
		return h.Amount
	}
	used := owned.of(h.Claim.UID)
	return h.Claim.Unused(&h.Amount, &used)
}

// UnusedOf is Unused for one resource. It allocates nothing.
func (h *Hold) UnusedOf(name v1.ResourceName, owned Owned) int64 {
	held := h.Amount.Amount(name)
	if held == 0 || !h.Claim.Inclusive() {
		return held
	}
	used := owned.of(h.Claim.UID)
	return max(0, held-used.Amount(name))
}

// Of returns what a claim has on the node, or nil.
func (n *NodeHolds) Of(claim types.UID) *Hold {
	if n == nil || claim == "" {
		return nil
	}
	for i := range n.Holds {
		if n.Holds[i].Claim.UID == claim {
			return &n.Holds[i]
		}
	}
	return nil
}

// YieldsTo reports whether a pod of that priority may take room that is held here for others.
func (n *NodeHolds) YieldsTo(priority int32) bool {
	return n != nil && len(n.Holds) > 0 && n.lowest < priority
}

// Unused returns what is unused of all holds together.
func (n *NodeHolds) Unused(owned Owned) ledger.Resources {
	var sum ledger.Resources
	if n == nil {
		return sum
	}
	for i := range n.Holds {
		unused := n.Holds[i].Unused(owned)
		sum.Add(&unused, 1)
	}
	return sum
}

// Excess is an amount without room, of a claim with slots that of a number of slots.
type Excess struct {
	Claim  types.UID
	Amount ledger.Resources
}

// Excess returns the claims of which not all that is unused has room beside the pods; none when the node is not too
// full. What pods leave of the slots that they use stays with these, whatever the priority of their claim: it comes
// before all slots and amounts that could go elsewhere, which are served in the order of Holds. A node is too full
// after a pod that holds do not keep off took the room, and after it shrank.
func (n *NodeHolds) Excess(allocatable, requested *ledger.Resources, owned Owned) []Excess {
	if n == nil {
		return nil
	}
	var excess []Excess
	room, movable := allocatable.Minus(requested), make([]ledger.Resources, len(n.Holds))
	for i := range n.Holds {
		h := &n.Holds[i]
		movable[i] = h.Unused(owned)
		if h.Claim.HasSlots() {
			whole := h.Claim.Slot.Times(movable[i].Slots(&h.Claim.Slot))
			rest := movable[i].Minus(&whole)
			room.Add(&rest, -1)
			movable[i] = whole
		}
	}
	for i := range n.Holds {
		c := n.Holds[i].Claim
		fit, over := c.splitByRoom(&movable[i], &room)
		if room.Add(&fit, -1); !over.IsZero() {
			excess = append(excess, Excess{Claim: c.UID, Amount: over})
		}
	}
	return excess
}

// splitByRoom divides an unused amount into what has room and the rest: by whole slots, or each resource by itself
// where there are none.
func (c *Claim) splitByRoom(unused, room *ledger.Resources) (fit, over ledger.Resources) {
	if c.HasSlots() {
		n := min(unused.Pods, room.Slots(&c.Slot))
		return c.Slot.Times(n), c.Slot.Times(unused.Pods - n)
	}
	fit = room.Positive()
	fit.SetMin(unused)
	return fit, unused.Minus(&fit)
}

// Kept adds to kept what unused holds keep from a pod, by resource.
func (n *NodeHolds) Kept(requester *Requester, owned Owned, names []v1.ResourceName, kept []int64) {
	if n == nil || requester.IgnoreHolds {
		return
	}
	for i := range n.Holds {
		h := &n.Holds[i]
		if h.Claim.UID == requester.Claim || h.Claim.Priority < requester.Priority {
			continue
		}
		unused := h.Unused(owned)
		for j, name := range names {
			kept[j] += unused.Amount(name)
		}
	}
}
