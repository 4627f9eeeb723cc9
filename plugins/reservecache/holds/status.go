package holds

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
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
	// Resized means that the slots have another size than the claim's.
	Resized bool
	// Consumers are the pods that use slots, the oldest use first; one that uses n slots is listed n times.
	Consumers []types.UID
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
	for name, h := range c.holds {
		ns := NodeStatus{Node: name, Zone: h.zone, Lost: h.lost, Count: h.count(), Resized: !h.slot.Equal(&c.spec.Slot)}
		for _, p := range h.consumers {
			for range p.slots {
				ns.Consumers = append(ns.Consumers, p.uid)
			}
		}
		status.Nodes = append(status.Nodes, ns)
	}
	slices.SortFunc(status.Nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Node, b.Node) })
	return status, true
}
