package serve

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// adoptStatuses takes over what the status of reservations says that they hold, the oldest first, as far as it has room: the status may be older than
// the last pods. Who uses it follows from the pods.
func (s *Server) adoptStatuses(reservations []applying) {
	for _, a := range reservations {
		listed := map[string]bool{}
		for i := range a.status.Zones {
			zone := &a.status.Zones[i]
			for j := range zone.Nodes {
				n := &zone.Nodes[j]
				listed[n.Name] = true
				s.restoreHold(a, zone.Name, n.Name, a.spec.recorded(n))
			}
		}
		if !a.current {
			continue
		}
		for name, amount := range a.spec.nodes { // those that the status leaves out hold what the spec says
			if node := s.snapshot.Node(name); !listed[name] && node != nil {
				s.restoreHold(a, node.Node.Labels[v1.LabelTopologyZone], name, amount)
			}
		}
	}
}

// recorded returns what the status says that is held on a node.
func (s *spec) recorded(n *v1alpha1.ReservationNodeStatus) ledger.Resources {
	switch {
	case s.nodes != nil:
		return ledger.ResourcesOf(n.Amounts.Held)
	case s.use == holds.UseLast:
		// In a status that names consumers the slots of headroom included those that pods had taken.
		return s.slot.Times(max(0, n.Slots-n.Used))
	}
	return s.slot.Times(n.Slots)
}

// restoreHold takes over what a reservation holds on a node, as far as it has room there beside what was restored before.
func (s *Server) restoreHold(a applying, zone, nodeName string, amount ledger.Resources) {
	node := s.snapshot.Node(nodeName)
	if node == nil {
		return
	}
	owned := s.OwnedOn(s.snapshot, node)
	claim := a.spec.target(a.priority).Claim
	room := node.Allocatable.Less(&node.Requested)
	others := s.Holds.Node(nodeName).Unused(func(uid types.UID) ledger.Resources { return owned[uid] })
	room.Add(&others, -1)
	used := owned[a.spec.uid]
	if !claim.HasSlots() {
		unused := claim.Unused(&amount, &used)
		room = room.Positive()
		amount.Lower(&used)
		unused.Lower(&room)
		amount.Add(&unused, 1)
	} else {
		claim.Slot = a.spec.slot
		for amount.Pods > 0 {
			if unused := claim.Unused(&amount, &used); unused.Exceeds(&room) == "" {
				break
			}
			amount = claim.SlotsAmount(int(amount.Pods) - 1)
		}
	}
	s.Holds.Restore(a.spec.uid, nodeName, zone, amount)
}
