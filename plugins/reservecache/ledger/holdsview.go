package ledger

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// NodeHolds is what is held on one node. It never changes: a change of the holds makes a new one, so that
// readers need no lock.
type NodeHolds struct {
	Node string
	// Holds are sorted by who keeps its slots where there is not room for all: by the priority of their
	// claims, highest first, then by the age, oldest first, then by For.
	Holds []Hold
}

// Hold is the slots of one claim on a node, all of one size.
type Hold struct {
	Claim *Claim
	// Requests is the size of one slot, its one pod included.
	Requests Resources
	// Slots is how many there are, used ones included.
	Slots int
	// For is the only pod that may use the slot; empty when all pods of the claim may.
	For types.UID
	// Consumers are the pods that use a slot, the oldest use first; never more than Slots.
	Consumers []types.UID
}

// Unused returns how many slots are not used by a pod that is present. A slot that is for one pod is used
// once that pod is there, recorded or not, so that its nomination is not counted twice. With a nil function
// all recorded consumers count as present.
func (h *Hold) Unused(present func(types.UID) bool) int {
	if present == nil {
		return h.Slots - len(h.Consumers)
	}
	if h.For != "" {
		if present(h.For) {
			return 0
		}
		return h.Slots
	}
	unused := h.Slots
	for _, uid := range h.Consumers {
		if present(uid) {
			unused--
		}
	}
	return unused
}

// HoldsView is what is held on each node, for a reader of its own. Bring it up to date with
// [Ledger.UpdateHoldsView]; between two such calls it does not change. It is not synchronized. The zero
// value is a view of nothing.
type HoldsView struct {
	ledger     *Ledger
	generation uint64
	version    uint64
	nodes      map[string]*NodeHolds
	changed    []string
	// most is no less than what is held on any node. stale counts the changes since it was taken.
	most  Resources
	stale int
}

// Empty reports whether nothing is held anywhere.
func (v *HoldsView) Empty() bool { return len(v.nodes) == 0 }

// Node returns what is held on a node, or nil. It does not allocate.
func (v *HoldsView) Node(name string) *NodeHolds { return v.nodes[name] }

// Changed returns the names of the nodes on which the holds changed at the last update.
func (v *HoldsView) Changed() []string { return v.changed }

// UpdateHoldsView brings a view up to date and returns on how many nodes the holds changed. It visits the
// nodes that changed since, as UpdateSnapshot does, and none as long as nothing is held.
//
// A view that was taken from another ledger is replaced.
func (l *Ledger) UpdateHoldsView(v *HoldsView) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer v.bound()
	if v.ledger != l {
		*v = HoldsView{ledger: l, version: l.heldVersion}
	}
	clear(v.changed)
	v.changed = v.changed[:0]
	if l.heldNodes == 0 {
		for name := range v.nodes {
			v.changed = append(v.changed, name)
		}
		clear(v.nodes)
		v.generation, v.version = l.generation, l.heldVersion
		return len(v.changed)
	}
	if v.nodes == nil {
		v.nodes = make(map[string]*NodeHolds, l.heldNodes)
	}
	if v.version != l.heldVersion {
		// Nodes went with their holds, and may not be in the list of changes any longer.
		for name := range v.nodes {
			if n := l.nodes[name]; n == nil || n.held == nil {
				delete(v.nodes, name)
				v.changed = append(v.changed, name)
			}
		}
		v.version = l.heldVersion
	}
	for n := l.newest; n != nil && n.generation > v.generation; n = n.older {
		if n.heldGeneration <= v.generation {
			continue
		}
		if n.held != nil {
			v.nodes[n.name] = n.held
			v.changed = append(v.changed, n.name)
		} else if _, had := v.nodes[n.name]; had {
			delete(v.nodes, n.name)
			v.changed = append(v.changed, n.name)
		}
	}
	v.generation = l.generation
	return len(v.changed)
}

// heldLocked publishes the holds of a node after a change of them.
func (l *Ledger) heldLocked(n *node) {
	had := n.held != nil
	n.held = nil
	if len(n.holds) > 0 {
		n.held = publish(n)
	}
	switch has := n.held != nil; {
	case has && !had:
		l.heldNodes++
	case had && !has:
		l.heldNodes--
	}
	l.claimsVersion++
	l.touchLocked(n)
	n.heldGeneration = n.generation
}

// publish copies the holds of a node for readers.
func publish(n *node) *NodeHolds {
	slices.SortFunc(n.holds, func(a, b *hold) int {
		return cmp.Or(compareRank(a.claim.spec, b.claim.spec), cmp.Compare(a.pod, b.pod))
	})
	held := &NodeHolds{Node: n.name, Holds: make([]Hold, 0, len(n.holds))}
	for _, h := range n.holds {
		var consumers []types.UID
		if len(h.consumers) > 0 {
			consumers = make([]types.UID, 0, len(h.consumers))
			for _, p := range h.consumers {
				consumers = append(consumers, p.object.UID)
			}
		}
		held.Holds = append(held.Holds, Hold{Claim: h.claim.spec, Requests: h.requests, Slots: h.slots, For: h.pod, Consumers: consumers})
	}
	return held
}

// Room returns what a claim may still take of a node: what is allocatable less what pods have requested and
// less all unused slots, the claim's own among them, save those of claims that it overrides. An amount is
// less than 0 where more is taken than there is. The holds may be nil, which is none.
func (n *NodeHolds) Room(allocatable, requested *Resources, claim *Claim, present func(types.UID) bool) Resources {
	room := allocatable.Clone()
	room.add(requested, -1)
	if n == nil {
		return room
	}
	for i := range n.Holds {
		if h := &n.Holds[i]; claim == nil || !overrides(claim, h.Claim) {
			room.add(&h.Requests, -int64(h.Unused(present)))
		}
	}
	return room
}

// Excess is how many unused slots of a hold have no room.
type Excess struct {
	Hold  *Hold
	Slots int
}

// Excess returns the holds of which not all unused slots have room beside the pods, when the slots are
// served in the order of Holds; none when the node is not overcommitted. That is the case after a pod of a
// higher priority or another scheduler's took the space, and after the node shrank.
func (n *NodeHolds) Excess(allocatable, requested *Resources, present func(types.UID) bool) []Excess {
	if n == nil {
		return nil
	}
	var excess []Excess
	sum := requested.Clone()
	for i := range n.Holds {
		h := &n.Holds[i]
		unused := h.Unused(present)
		fit := int64(unused)
		for name := range h.Requests.named() {
			room := allocatable.amount(name) - sum.amount(name)
			fit = min(fit, max(0, room)/h.Requests.amount(name))
		}
		sum.add(&h.Requests, fit)
		if over := unused - int(fit); over > 0 {
			excess = append(excess, Excess{Hold: h, Slots: over})
		}
	}
	return excess
}
