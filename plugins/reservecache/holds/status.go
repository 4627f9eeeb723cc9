package holds

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Status is what the records say of one claim.
type Status struct {
	Claim *Claim
	// Zones counts the slots by zone, and Lost those on nodes that are lost, which are in no zone's count.
	Zones map[string]Count
	Lost  Count
	// Nodes are sorted by name.
	Nodes []NodeStatus
}

// Sum counts the slots of all zones.
func (s *Status) Sum() Count {
	var sum Count
	for _, c := range s.Zones {
		sum = sum.plus(c)
	}
	return sum
}

// NodeStatus is what a claim has on one node.
type NodeStatus struct {
	Node, Zone string
	Lost       bool
	Count
	// Amount is all that is held, and Took what consumers took of it.
	Amount, Took ledger.Resources
	// Resized means that the slots have another size than the claim's.
	Resized bool
	// Consumers are the pods that use something, the oldest use first.
	Consumers []Consumer
}

// Status returns what is known of a claim, and false for one that is not registered.
func (s *Holds) Status(uid types.UID) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return Status{}, false
	}
	status := Status{Claim: c.spec, Zones: make(map[string]Count, len(c.zones)), Lost: c.lost, Nodes: make([]NodeStatus, 0, len(c.holds))}
	maps.Copy(status.Zones, c.zones)
	for name := range c.holds {
		status.Nodes = append(status.Nodes, c.statusOn(name))
	}
	slices.SortFunc(status.Nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Node, b.Node) })
	return status, true
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

func (c *claim) statusOn(nodeName string) NodeStatus {
	h := c.holds[nodeName]
	status := NodeStatus{
		Node: nodeName, Zone: h.zone, Lost: h.lost, Count: h.count(), Amount: h.amount, Took: h.used(),
		Resized: !c.spec.Amounts && !h.slot.Equal(&c.spec.Slot),
	}
	for _, p := range h.consumers {
		status.Consumers = append(status.Consumers, Consumer{UID: p.uid, Took: p.took})
	}
	return status
}
