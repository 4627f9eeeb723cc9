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

	// unused is the sum over all holds while all consumers are on the node.
	unused ledger.Resources
	// lowest is the lowest priority of the claims, consumers the number of consumers.
	lowest    int32
	consumers int
}

// Hold is what one claim has on a node.
type Hold struct {
	Claim *Claim
	// Amount is all that is held, used or not. Amount.Pods is the number of slots, if the claim has slots.
	Amount ledger.Resources
	// Consumers are the pods that use a part of it, the oldest use first. Together they never take more than Amount.
	Consumers []Consumer
}

// Consumer is a pod that uses a part of a hold.
type Consumer struct {
	UID types.UID
	// Took is its part. Took.Pods is the number of slots, if the claim has slots.
	Took ledger.Resources
}

// Present says what a pod on a node asks for, and false if it is not there. A nil Present means that all recorded consumers are there,
// and ask for what they took.
type Present func(types.UID) (requests ledger.Resources, there bool)

// Unused returns what no pod that is present uses. The result may share its map with the hold.
func (h *Hold) Unused(present Present) ledger.Resources {
	unused, shared := h.Amount, true
	for i := range h.Consumers {
		uses, there := h.uses(&h.Consumers[i], present)
		if !there {
			continue
		}
		if shared && unused.Scalar != nil {
			unused = unused.Clone()
		}
		shared = false
		unused.Add(&uses, -1)
	}
	return unused
}

// UnusedOf is Unused for one resource. It allocates nothing.
func (h *Hold) UnusedOf(name v1.ResourceName, present Present) int64 {
	unused := h.Amount.Amount(name)
	for i := range h.Consumers {
		c := &h.Consumers[i]
		if present == nil {
			unused -= c.Took.Amount(name)
		} else if requests, there := present(c.UID); there {
			unused -= h.Claim.usesOf(name, c, &requests)
		}
	}
	return unused
}

// uses returns how much of the hold a consumer uses, and false if it is not on the node.
func (h *Hold) uses(c *Consumer, present Present) (uses ledger.Resources, there bool) {
	if present == nil {
		return c.Took, true
	}
	requests, there := present(c.UID)
	if !there || h.Claim.replaced() {
		return c.Took, there
	}
	uses = withoutScalars(&c.Took)
	for name := range c.Took.Scalar {
		uses.Put(name, c.Took.Scalar[name])
	}
	requests.Pods = c.Took.Pods // a slot is used as a whole, as far as places go
	uses.Lower(&requests)
	return uses, true
}

// usesOf is uses for one resource, of a consumer that is on the node.
func (c *Claim) usesOf(name v1.ResourceName, consumer *Consumer, requests *ledger.Resources) int64 {
	took := consumer.Took.Amount(name)
	if c.replaced() || name == v1.ResourcePods {
		return took
	}
	return min(took, requests.Amount(name))
}

// replaced reports whether what a pod uses is held again elsewhere, and so no longer held where it is. Otherwise it stays held while the pod
// uses it: what the pod does not ask for of its slot is there for the next owner.
func (c *Claim) replaced() bool { return c.Use == UseLast && !c.Amounts }

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
func (n *NodeHolds) Unused(present Present) ledger.Resources {
	if n == nil {
		return ledger.Resources{}
	}
	unused := n.unused.Clone()
	if present == nil || n.consumers == 0 {
		return unused
	}
	for i := range n.Holds {
		for j := range n.Holds[i].Consumers {
			h, c := &n.Holds[i], &n.Holds[i].Consumers[j]
			unused.Add(&c.Took, 1)
			if uses, there := h.uses(c, present); there {
				unused.Add(&uses, -1)
			}
		}
	}
	return unused
}

// Excess is an amount without room, of a claim with slots that of a number of slots.
type Excess struct {
	Claim  types.UID
	Amount ledger.Resources
}

// Excess returns the claims of which not all that is unused has room beside the pods, when claims are served in the order of
// Holds; none when the node is not too full. It is so after a pod that holds do not keep off took the room, and after the
// node shrank.
func (n *NodeHolds) Excess(allocatable, requested *ledger.Resources, present Present) []Excess {
	if n == nil {
		return nil
	}
	var excess []Excess
	room := allocatable.Less(requested)
	for i := range n.Holds {
		h := &n.Holds[i]
		unused := h.Unused(present)
		if !h.Claim.Amounts {
			// What is left of used slots stays with them.
			whole := h.Claim.Slot.Times(unused.Pods)
			rest := unused.Less(&whole)
			room.Add(&rest, -1)
			unused = whole
		}
		fit, over := h.Claim.split(&unused, &room)
		if room.Add(&fit, -1); !over.IsZero() {
			excess = append(excess, Excess{Claim: h.Claim.UID, Amount: over})
		}
	}
	return excess
}

// split divides an unused amount into what has room and the rest: by whole slots, or each resource by itself.
func (c *Claim) split(unused, room *ledger.Resources) (fit, over ledger.Resources) {
	if !c.Amounts {
		n := min(unused.Pods, room.Slots(&c.Slot))
		return c.Slot.Times(n), c.Slot.Times(unused.Pods - n)
	}
	fit = room.Positive()
	fit.Lower(unused)
	return fit, unused.Less(&fit)
}

// Kept adds to kept what unused holds keep from a pod, by resource.
func (n *NodeHolds) Kept(who *Asker, present Present, names []v1.ResourceName, kept []int64) {
	if n == nil || who.IgnoreHolds {
		return
	}
	for i := range n.Holds {
		h := &n.Holds[i]
		if h.Claim.UID == who.Claim || h.Claim.Priority < who.Priority {
			continue
		}
		unused := h.Unused(present)
		for j, name := range names {
			kept[j] += unused.Amount(name)
		}
	}
}
