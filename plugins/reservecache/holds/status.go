package holds

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// NodeStatus is what a claim has on one node.
type NodeStatus struct {
	Node, Zone string
	// Amount is all that is held.
	Amount ledger.Resources
	// Resized means that the slots have another size than the claim's.
	Resized bool
}

// Slots is the number of slots, or of places for pods.
func (s *NodeStatus) Slots() int { return int(s.Amount.Pods) }

// Status returns what a claim has, sorted by node, and false for one that is not registered.
func (s *Holds) Status(uid types.UID) ([]NodeStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return nil, false
	}
	nodes := make([]NodeStatus, 0, len(c.holds))
	for name := range c.holds {
		nodes = append(nodes, c.statusOn(name))
	}
	slices.SortFunc(nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Node, b.Node) })
	return nodes, true
}

// StatusOn returns what a claim has on one node; it has nothing there if the result names no node.
func (s *Holds) StatusOn(uid types.UID, nodeName string) NodeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[uid]; c != nil && c.holds[nodeName] != nil {
		return c.statusOn(nodeName)
	}
	return NodeStatus{}
}

func (c *claimRecord) statusOn(nodeName string) NodeStatus {
	h := c.holds[nodeName]
	resized := c.spec.HasSlots() && !h.slot.Equal(&c.spec.Slot)
	return NodeStatus{Node: nodeName, Zone: h.zone, Amount: h.amount, Resized: resized}
}
