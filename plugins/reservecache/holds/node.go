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
	// Amount is all that is held, used or not. Amount.Pods is the number of slots.
	Amount ledger.Resources
	// Consumers are the pods that use a part of it, the oldest use first. Together they never take more than Amount.
	Consumers []Consumer
}

// Consumer is a pod that uses a part of a hold.
type Consumer struct {
	UID types.UID
	// Took is its part. Took.Pods is the number of slots.
	Took ledger.Resources
}

// Present says which pods are on a node. A nil Present means that all recorded consumers are.
type Present func(types.UID) bool

// Unused returns what no pod that is present uses. The result may share its map with the hold.
func (h *Hold) Unused(present Present) ledger.Resources {
	unused, shared := h.Amount, true
	for i := range h.Consumers {
		c := &h.Consumers[i]
		if present != nil && !present(c.UID) {
			continue
		}
		if shared && unused.Scalar != nil {
			unused = unused.Clone()
		}
		shared = false
		unused.Add(&c.Took, -1)
	}
	return unused
}

// Slots is how many slots of the hold no pod that is present uses.
func (h *Hold) Slots(present Present) int {
	slots := h.Amount.Pods
	for i := range h.Consumers {
		if c := &h.Consumers[i]; present == nil || present(c.UID) {
			slots -= c.Took.Pods
		}
	}
	return int(slots)
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
			if c := &n.Holds[i].Consumers[j]; !present(c.UID) {
				unused.Add(&c.Took, 1)
			}
		}
	}
	return unused
}

// Excess is slots without room.
type Excess struct {
	Claim types.UID
	Slots int
}

// Excess returns the claims of which not all unused slots have room beside the pods, when claims are served in the order of
// Holds; none when the node is not too full. It is so after a pod that holds do not keep off took the room, and after the
// node shrank.
func (n *NodeHolds) Excess(allocatable, requested *ledger.Resources, present Present) []Excess {
	if n == nil {
		return nil
	}
	var excess []Excess
	room := allocatable.Clone()
	room.Add(requested, -1)
	for i := range n.Holds {
		h := &n.Holds[i]
		unused := h.Unused(present)
		fit := unused.Pods
		if fit == 0 {
			continue
		}
		slot := &h.Claim.Slot
		for name := range slot.Named() {
			fit = min(fit, max(0, room.Amount(name))/slot.Amount(name))
		}
		room.Add(slot, -fit)
		if over := unused.Pods - fit; over > 0 {
			excess = append(excess, Excess{Claim: h.Claim.UID, Slots: int(over)})
		}
	}
	return excess
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
