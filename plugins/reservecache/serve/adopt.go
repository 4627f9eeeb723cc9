package serve

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// adoptStatuses takes over what the status of reservations says that they hold, as far as it has room: the status may
// be older than the last pods. Who uses it follows from the pods. Where there is not room for all, the planner's order
// decides (see holds.NodeHolds.Excess).
func (s *Server) adoptStatuses(reservations []applying) {
	zones := map[string]string{} // of the nodes on which something is held
	restore := func(a applying, zone, nodeName string, amount ledger.Resources) {
		if s.snapshot.Node(nodeName) != nil {
			s.Holds.Restore(a.spec.uid, nodeName, zone, amount)
			zones[nodeName] = zone
		}
	}
	for _, a := range reservations {
		listed := map[string]bool{}
		for i := range a.status.Zones {
			zone := &a.status.Zones[i]
			for j := range zone.Nodes {
				n := &zone.Nodes[j]
				listed[n.Name] = true
				restore(a, zone.Name, n.Name, a.spec.recorded(n))
			}
		}
		if !a.current {
			continue
		}
		for name, amount := range a.spec.nodes { // those that the status leaves out hold what the spec says
			if node := s.snapshot.Node(name); !listed[name] && node != nil {
				restore(a, node.Node.Labels[v1.LabelTopologyZone], name, amount)
			}
		}
	}
	for name, zone := range zones {
		n := s.snapshot.Node(name)
		owned := s.OwnedOn(s.snapshot, n)
		ownedBy := func(uid types.UID) ledger.Resources { return owned[uid] }
		for _, e := range s.Holds.Node(name).Excess(&n.Allocatable, &n.Requested, ownedBy) {
			s.Holds.Change(e.Claim, []holds.Change{{Node: name, Zone: zone, Add: e.Amount.Times(-1)}})
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
